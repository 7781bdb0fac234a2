-- WHY: an operator's work on many rows may take minutes, must not run at the speed of the database,
-- and must survive the server that began it. So it is a row of its own. Where it stands is written
-- in the transaction that does a part of the work: a restart neither forgets nor repeats anything.
CREATE TABLE waybill.operations (
    id               bigint           NOT NULL DEFAULT nextval('waybill.ids'),
    namespace_id     integer          NOT NULL DEFAULT 1,
    kind             text             NOT NULL,
    status           text             NOT NULL DEFAULT 'RUNNING',
    filter           json             NOT NULL,
    config           text,                                -- of replays: `original` or `current`
    reason           text,
    per_second       double precision NOT NULL,
    actor            text,
    matched          bigint           NOT NULL,
    matched_is_exact boolean          NOT NULL,
    done             bigint           NOT NULL DEFAULT 0,
    skipped          bigint           NOT NULL DEFAULT 0,
    failed           bigint           NOT NULL DEFAULT 0,
    last_id          bigint           NOT NULL DEFAULT 0, -- all up to this one were dealt with
    until_id         bigint           NOT NULL,           -- those that came later are not meant
    part_of          bigint,                              -- the event behind `last_id` that was begun,
    part_last_id     bigint,                              -- and its last push that was dealt with
    part_is_changed  boolean          NOT NULL DEFAULT false, -- whether any of those pushes was changed
    part_has_failed  boolean          NOT NULL DEFAULT false, -- whether any of them could not be changed
    failed_steps     integer          NOT NULL DEFAULT 0, -- less those that succeeded since: each halves the next step
    next_at          timestamptz      NOT NULL,
    created_at       timestamptz      NOT NULL,
    started_at       timestamptz,
    finished_at      timestamptz,
    PRIMARY KEY (namespace_id, id),
    CONSTRAINT operations_kind_is_known
        CHECK (kind IN ('retry_events', 'cancel_events', 'reset_events', 'retry_deliveries', 'cancel_deliveries',
                        'replay_dead_letters')),
    CONSTRAINT operations_status_is_known CHECK (status IN ('RUNNING', 'COMPLETED', 'CANCELLED', 'FAILED')),
    CONSTRAINT operations_config_is_known CHECK (config IN ('original', 'current')),
    CONSTRAINT operations_config_is_of_replays CHECK ((config IS NOT NULL) = (kind = 'replay_dead_letters')),
    CONSTRAINT operations_rate_is_positive CHECK (per_second > 0),
    CONSTRAINT operations_counts_are_not_negative CHECK (matched >= 0 AND done >= 0 AND skipped >= 0 AND failed >= 0),
    CONSTRAINT operations_part_is_whole CHECK ((part_of IS NULL) = (part_last_id IS NULL)),
    CONSTRAINT operations_finished_exactly_when_over CHECK ((finished_at IS NULL) = (status = 'RUNNING'))
);

CREATE INDEX operations_running ON waybill.operations (next_at) WHERE status = 'RUNNING';
CREATE INDEX operations_by_status ON waybill.operations (namespace_id, status, id);
CREATE INDEX operations_by_kind ON waybill.operations (namespace_id, kind, id);
CREATE INDEX operations_by_age ON waybill.operations (finished_at) WHERE finished_at IS NOT NULL;
