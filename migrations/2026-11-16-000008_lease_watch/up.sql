-- WHY: a delivery changes its state at least twice, and PostgreSQL can rewrite a row in place
-- (HOT: no new index entries, no dead ones for vacuum) only if no index mentions what changed.
-- Two indexes mentioned `status`, so each step of each life wrote to the primary key, too.
--
-- Leases that may have run out are now found through a list: each claim, however many
-- deliveries it hands out, adds one row, to be looked at when the first of its leases ends and
-- every few seconds before that; whatever is settled by then falls out of the list. The truth
-- stays on the delivery's row. And since dead rows lie only before the first live one, a
-- server can begin to look where it last found something, even while an old snapshot keeps
-- the dead ones from being removed.
CREATE SEQUENCE waybill.lease_watch_ids AS bigint;

CREATE TABLE waybill.lease_watch (
    look_at      timestamptz NOT NULL,
    id           bigint      NOT NULL DEFAULT nextval('waybill.lease_watch_ids'),
    delivery_ids bigint[]    NOT NULL,
    PRIMARY KEY (look_at, id)
) WITH (
    -- A row lives for seconds.
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

INSERT INTO waybill.lease_watch (look_at, delivery_ids)
SELECT lease_expires_at, array_agg(id) FROM waybill.deliveries
WHERE lease_expires_at IS NOT NULL GROUP BY lease_expires_at;

DROP INDEX waybill.deliveries_in_flight;

-- What operators look for, and what a bounded scan would not find in a long history. Null in
-- all other states, so that the common steps leave the index alone.
ALTER TABLE waybill.deliveries ADD COLUMN unhappy_status text
    GENERATED ALWAYS AS (CASE WHEN status IN ('FAILED', 'CANCELLED') THEN status END) STORED;
DROP INDEX waybill.deliveries_unhappy;
CREATE INDEX deliveries_unhappy ON waybill.deliveries (unhappy_status, id)
    WHERE unhappy_status IS NOT NULL;
