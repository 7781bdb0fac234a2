-- WHY: workers do not register; they are seen. Servers note who called and what for, and
-- write it down in one statement every few seconds, however many workers there are.
CREATE TABLE waybill.workers (
    namespace_id  integer     NOT NULL DEFAULT 1,
    worker_id     text        NOT NULL,
    tags          text[]      NOT NULL DEFAULT '{}', -- what it asked for last
    first_seen_at timestamptz NOT NULL,
    last_seen_at  timestamptz NOT NULL,
    PRIMARY KEY (namespace_id, worker_id)
) WITH (fillfactor = 70);

CREATE INDEX workers_by_last_seen ON waybill.workers (last_seen_at);
