-- WHY: a delivery is one consumer's work on an event, and the only row that changes with every step of that
-- work. `subscription_id IS NULL` marks the event's own row, whose id is the event's id, so a worker's call finds
-- it by its key alone. It is the work of the pull queue. Of an event that is only pushed it is the roll-up of its
-- pushes: `open_deliveries` counts the unfinished ones, `failed_deliveries` those that were abandoned, and the
-- row is PENDING until none is open. They are counted, not looked up: two pushes that end at the same moment must
-- not each take the other for open.
--
-- No foreign key to events: the check would lock the event's row on every insert, and both rows are written by one
-- statement anyway.
--
-- HOT: a row is rewritten at least twice, and PostgreSQL rewrites it in place (no new index entries, none for
-- vacuum to remove) only if no index mentions a column that changed. So no index mentions `status`, `ready_seq` or
-- the lease; what must be listed by status and is not found elsewhere has it in `listed_status`, too.
--
-- The order of the columns is that of their alignment, with those that change in the middle: WAL leaves out what is
-- equal at the beginning and at the end of the old and the new row.
CREATE TYPE waybill.status AS ENUM ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'CANCELLED');

CREATE TYPE waybill.action AS ENUM (
    'PICKED', 'STARTED', 'COMPLETED', 'FAILED', 'RELEASED', 'RESET', 'RETRIED', 'CANCELLED', 'EXPIRED',
    'DEAD_LETTERED', 'REPLAYED');

-- Returns the status of a roll-up with these counts.
CREATE FUNCTION waybill.roll_up_status(open integer, failed integer, cancel_requested boolean) RETURNS waybill.status
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN open > 0 THEN 'PENDING'::waybill.status
                WHEN failed > 0 THEN 'FAILED'
                WHEN cancel_requested THEN 'CANCELLED'
                ELSE 'COMPLETED' END
$$;

CREATE TABLE waybill.deliveries (
    id                bigint      NOT NULL,
    event_id          bigint      NOT NULL,
    subscription_id   bigint,
    replay_of         bigint,                         -- the dead letter that is replayed: its settings may apply
    order_seq         bigint,                         -- its position behind its key, while unfinished, or while it
                                                      -- has failed and blocks its key
    expires_at        timestamptz,                    -- a copy of the event's, while it matters
    namespace_id      integer     NOT NULL DEFAULT 1,
    max_retries       integer     NOT NULL,
    retry_count       integer     NOT NULL DEFAULT 0,
    rescue_count      integer     NOT NULL DEFAULT 0, -- lease expiries in a row, with no sign of life between
    open_deliveries   integer,
    failed_deliveries integer,
    listed_status     waybill.status,                 -- the status of a failed or cancelled row, of a roll-up, and of an
                                                      -- event that nobody had to handle; otherwise null
    priority          smallint    NOT NULL,
    cancel_requested  boolean     NOT NULL DEFAULT false,
    status            waybill.status NOT NULL,
    lease_id          bigint      NOT NULL DEFAULT 0, -- the `seq` of the entry in `ready` that was claimed last, so it
                                                      -- grows with every claim, and no two claims share one
    updated_at        timestamptz NOT NULL DEFAULT now(),
    ready_seq         bigint,                         -- its entry in `ready`, while it is there
    lease_expires_at  timestamptz,
    due_at            timestamptz,                    -- not before this time; null once it is due
    started_at        timestamptz,                    -- when the current claim was started
    settled_lease_id  bigint,                         -- the last claim that its worker settled,
    settled_action    waybill.action,                 -- and how
    ordering_key      text        COLLATE "C",
    cancel_reason     text,                           -- until its CANCELLED entry is logged
    last_error        text,
    progress          json,
    result            json,
    worker_id         text,                           -- who claimed it last
    PRIMARY KEY (namespace_id, id)
) WITH (
    -- Leave each row room on its page for its next version: a batch claims all rows of a page at once, and until that
    -- statement has ended, both versions of each are there. Vacuum by the number of dead rows rather than by a share of
    -- a table that may be huge.
    fillfactor = 40,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- For background services: delayed and retrying work that becomes due, and work that is worthless after a time.
CREATE INDEX deliveries_by_due_time ON waybill.deliveries (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_by_expiry ON waybill.deliveries (expires_at) WHERE expires_at IS NOT NULL;

-- The head of an ordering key, and who comes next. Unique: no two have the same position.
CREATE UNIQUE INDEX deliveries_by_order
    ON waybill.deliveries (namespace_id, ordering_key, coalesce(subscription_id, 0), order_seq)
    WHERE order_seq IS NOT NULL;

-- One push per event and subscription, and the pushes of a subscription. The conditions differ, so that a query for
-- one of them cannot use the other: while the table is empty, both look the same to the planner.
CREATE UNIQUE INDEX deliveries_of_event ON waybill.deliveries (namespace_id, event_id, subscription_id)
    WHERE subscription_id IS NOT NULL;
CREATE INDEX deliveries_of_subscription ON waybill.deliveries (namespace_id, subscription_id, id)
    WHERE subscription_id > 0;

-- Lists by status. Of what has gone wrong, events and pushes are listed apart: one of them may be millions where
-- the other is few. Pending events are in `ready`, in `deliveries_waiting` or are roll-ups.
CREATE INDEX deliveries_listed_events ON waybill.deliveries (namespace_id, listed_status, id)
    WHERE listed_status IS NOT NULL AND subscription_id IS NULL;
CREATE INDEX deliveries_listed_pushes ON waybill.deliveries (namespace_id, listed_status, id)
    WHERE listed_status IS NOT NULL AND subscription_id IS NOT NULL;
CREATE INDEX deliveries_waiting ON waybill.deliveries (namespace_id, id)
    WHERE subscription_id IS NULL AND (due_at IS NOT NULL OR order_seq IS NOT NULL);
