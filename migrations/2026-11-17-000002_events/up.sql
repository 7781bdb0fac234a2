-- WHY: an event is a fact. It is written once and never changed, so its indexes cost one entry each;
-- `deliveries` and `event_log` have what happens to it. `payload` is `json` and not `jsonb`, because what was
-- published must come back byte for byte.
--
-- One sequence numbers events and deliveries: the row with an event's own state has the event's id, and no other
-- delivery may ever get that number. Numbers are handed out in JSON, which carries 53 bits. A sequence that is at
-- its end refuses.
--
-- Columns are in the order of their alignment, so no row has gaps. The rules about single rows are in
-- 000004_rules: as CHECK constraints they would be parsed again by every statement.
CREATE SEQUENCE waybill.ids AS bigint MAXVALUE 9007199254740991;

CREATE TABLE waybill.events (
    id             bigint      NOT NULL DEFAULT nextval('waybill.ids'),
    created_at     timestamptz NOT NULL DEFAULT now(),
    run_at         timestamptz,
    expires_at     timestamptz,
    namespace_id   integer     NOT NULL DEFAULT 1,
    max_retries    integer     NOT NULL DEFAULT 3,
    payload_bytes  integer,                -- only of payloads over 4 KiB: a claim is bounded in bytes, and must know the
                                           -- size of a payload before it reads it
    priority       smallint    NOT NULL DEFAULT 0,
    title          text        NOT NULL,
    tags           text        NOT NULL,   -- joined by commas, which no tag contains; empty: only pushed
    event_type     text        COLLATE "C",
    ordering_key   text        COLLATE "C",
    correlation_id text        COLLATE "C",
    traceparent    text,
    description    text,
    labels         json,
    backoff        json,
    payload        json,
    PRIMARY KEY (namespace_id, id)
) WITH (
    -- Old events are deleted in the order of their ids; vacuum by the number of deleted rows rather than by a share
    -- of a table that may be huge.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

-- Lists by one field, in the order of ids. All but the first cost nothing for events without the field.
CREATE INDEX events_by_tag ON waybill.events (namespace_id, (split_part(tags, ',', 1) COLLATE "C"), id) WHERE tags <> '';
CREATE INDEX events_by_type ON waybill.events (namespace_id, event_type, id) WHERE event_type IS NOT NULL;
CREATE INDEX events_by_ordering_key ON waybill.events (namespace_id, ordering_key, id) WHERE ordering_key IS NOT NULL;
CREATE INDEX events_by_correlation ON waybill.events (namespace_id, correlation_id, id) WHERE correlation_id IS NOT NULL;

-- From a time to an id: events are in the order of their ids, and almost in the order of their times. Every 64th
-- event is enough to find the place, and costs next to nothing.
CREATE INDEX events_time_samples ON waybill.events (namespace_id, created_at, id) WHERE id % 64 = 0;

-- The second and further tags of events, for lists by tag. Most events have one tag and no row here.
CREATE TABLE waybill.event_tags (
    event_id     bigint  NOT NULL,
    namespace_id integer NOT NULL,
    tag          text    COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace_id, tag, event_id)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
