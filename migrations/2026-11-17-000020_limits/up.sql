-- WHY: an administrator limits what a namespace or a key may publish, and is answered instead of surprised. The limits of
-- a namespace are in its settings, those of a key are columns of it. Null: not limited. Servers of the version before go
-- on without limits.
ALTER TABLE waybill.api_keys ADD COLUMN publishes_per_second integer;
ALTER TABLE waybill.api_keys ADD COLUMN publish_burst integer;

-- Servers look every second whether anything is limited. Usually nothing is, and these indexes are empty.
CREATE INDEX namespaces_with_limits ON waybill.namespaces (id) WHERE (settings -> 'limits') IS NOT NULL;
CREATE INDEX api_keys_with_limits ON waybill.api_keys (namespace_id, id) WHERE publishes_per_second IS NOT NULL;

-- The servers that share rates. Each server has one row, which only that server changes.
CREATE TABLE waybill.servers (
    instance text        PRIMARY KEY,
    seen_at  timestamptz NOT NULL
);
