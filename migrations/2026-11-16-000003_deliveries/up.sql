-- WHY: a delivery is one consumer's work on an event, and the only row that changes with
-- every step of that work. `subscription_id IS NULL` marks the event's own row (the pull
-- queue's work; for an event without tags the roll-up of its deliveries), whose id is the
-- event's id, so that a worker's call finds it by primary key alone.
--
-- No foreign key to events: the check would lock the event's row on every insert, and both
-- rows are written by one statement anyway.
CREATE TABLE waybill.deliveries (
    id               bigint      PRIMARY KEY,
    event_id         bigint      NOT NULL,
    namespace_id     integer     NOT NULL DEFAULT 1,
    subscription_id  bigint,
    status           text        NOT NULL,
    priority         smallint    NOT NULL,
    retry_count      integer     NOT NULL DEFAULT 0,
    max_retries      integer     NOT NULL,
    rescue_count     integer     NOT NULL DEFAULT 0, -- lease expiries in a row, with no sign of life between
    lease_id         integer     NOT NULL DEFAULT 0, -- counts the claims; the fencing token
    worker_id        text,                           -- who claimed it last
    lease_expires_at timestamptz,
    cancel_requested boolean     NOT NULL DEFAULT false,
    ready_seq        bigint,                         -- its place in `ready`, while it is there
    due_at           timestamptz,                    -- not before this; null once it is due
    expires_at       timestamptz,                    -- a copy of the event's, while it matters
    ordering_key     text,
    order_seq        bigint,                         -- its place behind its key, while unfinished
    started_at       timestamptz,                    -- when the present claim was started
    settled_lease_id integer,                        -- the last claim that ended by its worker's word,
    settled_action   text,                           -- and how it ended
    progress         json,
    result           json,
    last_error       text,
    updated_at       timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT deliveries_status_is_known
        CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'CANCELLED')),
    CONSTRAINT deliveries_own_row_has_the_events_id
        CHECK ((subscription_id IS NULL) = (id = event_id)),
    CONSTRAINT deliveries_lease_exactly_while_processing
        CHECK ((status = 'PROCESSING') = (lease_expires_at IS NOT NULL)),
    CONSTRAINT deliveries_processing_by_a_claim
        CHECK (status <> 'PROCESSING' OR (worker_id IS NOT NULL AND lease_id > 0)),
    CONSTRAINT deliveries_ready_only_while_pending_and_due
        CHECK (ready_seq IS NULL OR (status = 'PENDING' AND due_at IS NULL)),
    CONSTRAINT deliveries_due_only_while_pending
        CHECK (due_at IS NULL OR status = 'PENDING'),
    CONSTRAINT deliveries_pending_is_ready_or_waits_for_something
        CHECK (status <> 'PENDING' OR ready_seq IS NOT NULL OR due_at IS NOT NULL OR order_seq IS NOT NULL),
    CONSTRAINT deliveries_ordered_exactly_while_unfinished
        CHECK ((order_seq IS NOT NULL) = (ordering_key IS NOT NULL AND status IN ('PENDING', 'PROCESSING'))),
    CONSTRAINT deliveries_expire_only_while_unfinished
        CHECK (expires_at IS NULL OR status IN ('PENDING', 'PROCESSING')),
    CONSTRAINT deliveries_retries_within_limit
        CHECK (retry_count BETWEEN 0 AND max_retries),
    CONSTRAINT deliveries_settlement_is_whole
        CHECK ((settled_lease_id IS NULL) = (settled_action IS NULL)),
    CONSTRAINT deliveries_settled_by_a_claim_that_was
        CHECK (settled_lease_id IS NULL OR settled_lease_id <= lease_id)
) WITH (
    -- Every row is rewritten at least twice: leave it room on its page, and vacuum by the
    -- number of dead rows rather than by a share of a table that may be huge.
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- Expired leases, and who holds what.
CREATE INDEX deliveries_in_flight ON waybill.deliveries (lease_expires_at)
    WHERE status = 'PROCESSING';
-- Delayed and retrying work falling due.
CREATE INDEX deliveries_by_due_time ON waybill.deliveries (due_at)
    WHERE due_at IS NOT NULL;
-- Work that is worthless after a time.
CREATE INDEX deliveries_by_expiry ON waybill.deliveries (expires_at)
    WHERE expires_at IS NOT NULL;
-- The head of an ordering key, and who comes next. Unique: no two share a place.
CREATE UNIQUE INDEX deliveries_by_order ON waybill.deliveries (namespace_id, ordering_key, coalesce(subscription_id, 0), order_seq)
    WHERE order_seq IS NOT NULL;
-- What operators look for and what a bounded scan would not find in a long history.
CREATE INDEX deliveries_unhappy ON waybill.deliveries (status, id)
    WHERE status IN ('FAILED', 'CANCELLED');
