-- WHY: the page of an event shows its whole life, and two things about it were written nowhere: how long the lease of a
-- claim was, and which settlements of former lease holders were refused.
--
-- A line PICKED says the length of its lease. It is null for the default of 300 seconds, and for pushes: a null costs no
-- byte, because the row has a bitmap of nulls already. Lines of former versions are null, too.
ALTER TABLE waybill.event_log ADD COLUMN lease_seconds real;

-- A view keeps the columns that it was made with.
CREATE OR REPLACE VIEW waybill.event_trails AS
    SELECT * FROM waybill.event_log WHERE delivery_id IS NULL AND action = 'COMPLETED'
    UNION ALL
    SELECT * FROM waybill.event_log WHERE delivery_id IS NOT NULL OR action <> 'COMPLETED';

-- Calls of workers that were refused because of the state of the claim. They change nothing, so they are not in
-- `event_log`, and servers write them later and not all of them. Calls that differ in nothing but their time are
-- one row, which counts them.
CREATE TABLE waybill.refused_settlements (
    namespace_id integer     NOT NULL DEFAULT 1,
    event_id     bigint      NOT NULL,
    lease_id     bigint      NOT NULL,                   -- that the caller named; 0 if it named none
    action       text        NOT NULL COLLATE "C",       -- what the caller wanted to do: the last word of the path
    code         text        NOT NULL COLLATE "C",       -- of the problem that the caller got
    worker_id    text        NOT NULL COLLATE "C",
    actor        text,                                   -- the name of the last caller's key
    calls        bigint      NOT NULL,
    first_at     timestamptz NOT NULL,
    last_at      timestamptz NOT NULL,
    PRIMARY KEY (namespace_id, event_id, lease_id, action, code, worker_id),
    CONSTRAINT refused_settlements_are_counted CHECK (calls > 0 AND first_at <= last_at)
);

CREATE INDEX refused_settlements_by_age ON waybill.refused_settlements (last_at);
