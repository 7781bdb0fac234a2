-- WHY: a worker whose claim was answered into the void asks again with the same idempotency
-- key and must get the same events, not new ones. One row per such claim remembers what was
-- handed out (simultaneous askers take turns by an advisory lock). An answer that did not
-- arrive is undone, but only if it was the last: `asks` tells whether another was given since.
CREATE TABLE waybill.claim_requests (
    namespace_id    integer     NOT NULL DEFAULT 1,
    worker_id       text        NOT NULL,
    idempotency_key text        NOT NULL,
    delivery_ids    bigint[]    NOT NULL DEFAULT '{}',
    lease_ids       integer[]   NOT NULL DEFAULT '{}',
    asks            integer     NOT NULL DEFAULT 1,
    claimed_at      timestamptz NOT NULL,
    PRIMARY KEY (namespace_id, worker_id, idempotency_key),
    CONSTRAINT claim_requests_pair_up CHECK (cardinality(delivery_ids) = cardinality(lease_ids))
);

CREATE INDEX claim_requests_by_age ON waybill.claim_requests (claimed_at);
