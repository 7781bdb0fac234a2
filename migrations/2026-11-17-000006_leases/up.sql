-- WHY: leases that may have expired are found through a list, since an index of leases on `deliveries` would cost
-- every step of every life an index entry. Each claim, however many deliveries it hands out, adds one row. It is
-- looked at when the first of its leases ends, and every few seconds before that; what has been settled by then
-- leaves the list. The delivery's row stays the truth. Dead rows lie only before the first live one, so a server
-- begins its next scan where it last found something, even while an old snapshot keeps dead rows from being removed.
CREATE SEQUENCE waybill.lease_watch_ids AS bigint MAXVALUE 9007199254740991;

CREATE TABLE waybill.lease_watch (
    look_at      timestamptz NOT NULL,
    id           bigint      NOT NULL DEFAULT nextval('waybill.lease_watch_ids'),
    namespace_id integer     NOT NULL DEFAULT 1,
    delivery_ids bigint[]    NOT NULL,
    PRIMARY KEY (look_at, id)
) WITH (
    -- A row lives for seconds. That of a claim of 1,000 stays in one piece: compressing it takes longer than writing it.
    toast_tuple_target = 8160,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- A worker that did not receive the response to its claim asks again with the same idempotency key, and must get the
-- same events, not new ones. One row per such claim remembers what was handed out (simultaneous calls take turns by an
-- advisory lock). A response that did not arrive is undone, but only if it was the last: `asks` tells whether another
-- one was given since.
CREATE TABLE waybill.claim_requests (
    claimed_at      timestamptz NOT NULL,
    namespace_id    integer     NOT NULL DEFAULT 1,
    asks            integer     NOT NULL DEFAULT 1,
    worker_id       text        NOT NULL,
    idempotency_key text        NOT NULL,
    delivery_ids    bigint[]    NOT NULL DEFAULT '{}',
    lease_ids       bigint[]    NOT NULL DEFAULT '{}',
    PRIMARY KEY (namespace_id, worker_id, idempotency_key),
    CONSTRAINT claim_requests_pair_up CHECK (cardinality(delivery_ids) = cardinality(lease_ids))
);

CREATE INDEX claim_requests_by_age ON waybill.claim_requests (claimed_at);

-- Workers do not register; they are seen. Servers note who called and what for, and write it down in one statement
-- every few seconds, however many workers there are.
CREATE TABLE waybill.workers (
    namespace_id  integer     NOT NULL DEFAULT 1,
    worker_id     text        NOT NULL,
    tags          text[]      NOT NULL DEFAULT '{}', -- what it asked for last
    first_seen_at timestamptz NOT NULL,
    last_seen_at  timestamptz NOT NULL,
    PRIMARY KEY (namespace_id, worker_id)
) WITH (fillfactor = 70);

CREATE INDEX workers_by_last_seen ON waybill.workers (last_seen_at);
