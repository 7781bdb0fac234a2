-- WHY: what was given up must be there for whoever looks into it later, as it was at the time:
-- the event may have been pruned and the subscription changed since. So a dead letter is a
-- copy and needs neither. Header values and the edited body of a replay are kept, because a
-- replay sends them; they are not shown.
CREATE TABLE waybill.dead_letters (
    id                   bigint      PRIMARY KEY DEFAULT nextval('waybill.ids'),
    namespace_id         integer     NOT NULL DEFAULT 1,
    delivery_id          bigint      NOT NULL,
    event_id             bigint      NOT NULL,
    subscription_id      bigint      NOT NULL,
    subscription_version integer     NOT NULL,
    reason               text        NOT NULL,
    detail               text,
    actor                text,                  -- who moved it here by hand
    event                json        NOT NULL,
    subscription         json        NOT NULL,
    attempts             json        NOT NULL,
    created_at           timestamptz NOT NULL,
    replayed_at          timestamptz,
    replay_actor         text,
    replay_reason        text,
    replay_config        text,                  -- `original` or `current`
    replay_payload       json,
    replay_webhook_id    text,
    CONSTRAINT dead_letters_reason_is_known
        CHECK (reason IN ('exhausted', 'terminal', 'expired', 'poison', 'manual')),
    CONSTRAINT dead_letters_replay_config_is_known
        CHECK (replay_config IS NULL OR replay_config IN ('original', 'current')),
    CONSTRAINT dead_letters_replay_is_whole
        CHECK ((replayed_at IS NULL) = (replay_config IS NULL))
);

CREATE INDEX dead_letters_by_event ON waybill.dead_letters (event_id, id);
CREATE INDEX dead_letters_by_subscription ON waybill.dead_letters (subscription_id, id);
CREATE INDEX dead_letters_by_age ON waybill.dead_letters (created_at);
-- At most one of a delivery waits for somebody to decide.
CREATE UNIQUE INDEX dead_letters_open ON waybill.dead_letters (delivery_id) WHERE replayed_at IS NULL;

-- A replay of many, worked off at its own pace. Where it stands is written in the transaction
-- that replays, so that a restart neither forgets nor repeats anything.
CREATE TABLE waybill.replay_jobs (
    id              bigint           PRIMARY KEY DEFAULT nextval('waybill.ids'),
    namespace_id    integer          NOT NULL DEFAULT 1,
    status          text             NOT NULL DEFAULT 'RUNNING',
    filter          json             NOT NULL,
    config          text             NOT NULL,
    rate_per_second double precision NOT NULL,
    requested_by    text,
    matched         bigint           NOT NULL,
    replayed        bigint           NOT NULL DEFAULT 0,
    skipped         bigint           NOT NULL DEFAULT 0,
    last_id         bigint           NOT NULL DEFAULT 0, -- the last dead letter that was dealt with
    until_id        bigint           NOT NULL,           -- those that came later are not meant
    next_at         timestamptz      NOT NULL,
    created_at      timestamptz      NOT NULL,
    updated_at      timestamptz      NOT NULL,
    CONSTRAINT replay_jobs_status_is_known CHECK (status IN ('RUNNING', 'DONE', 'CANCELLED')),
    CONSTRAINT replay_jobs_config_is_known CHECK (config IN ('original', 'current')),
    CONSTRAINT replay_jobs_rate_is_positive CHECK (rate_per_second > 0)
);

CREATE INDEX replay_jobs_running ON waybill.replay_jobs (next_at) WHERE status = 'RUNNING';
