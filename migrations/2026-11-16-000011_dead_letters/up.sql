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
