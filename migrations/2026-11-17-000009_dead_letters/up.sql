-- WHY: an abandoned push must be there for whoever looks into it later, as it was at the time: the event may have
-- been removed and the subscription changed since. So a dead letter is a copy and needs neither, and a replay after
-- the event was removed is made from the copy. Header values and the edited body of a replay are kept, because a
-- replay sends them; they are not shown.
CREATE TABLE waybill.dead_letters (
    id                   bigint      NOT NULL DEFAULT nextval('waybill.ids'),
    namespace_id         integer     NOT NULL DEFAULT 1,
    subscription_version integer     NOT NULL,
    delivery_id          bigint      NOT NULL,
    event_id             bigint      NOT NULL,
    subscription_id      bigint      NOT NULL,
    lease_id             bigint      NOT NULL DEFAULT 0, -- the last claim of the push: the next one must be higher
    created_at           timestamptz NOT NULL,
    replayed_at          timestamptz,
    reason               text        NOT NULL,
    detail               text,
    actor                text,                  -- who moved it here by hand
    ordering_key         text        COLLATE "C", -- of the push, which may be another one than that of the event
    event                json        NOT NULL,
    subscription         json        NOT NULL,
    attempts             json        NOT NULL,
    replay_actor         text,
    replay_reason        text,
    replay_config        text,                  -- `original` or `current`
    replay_payload       json,
    replay_webhook_id    text,
    PRIMARY KEY (namespace_id, id),
    CONSTRAINT dead_letters_reason_is_known
        CHECK (reason IN ('exhausted', 'terminal', 'expired', 'poison', 'manual')),
    CONSTRAINT dead_letters_replay_config_is_known
        CHECK (replay_config IS NULL OR replay_config IN ('original', 'current')),
    CONSTRAINT dead_letters_replay_is_whole
        CHECK ((replayed_at IS NULL) = (replay_config IS NULL))
);

CREATE INDEX dead_letters_by_event ON waybill.dead_letters (namespace_id, event_id, id);
CREATE INDEX dead_letters_by_subscription ON waybill.dead_letters (namespace_id, subscription_id, id);
CREATE INDEX dead_letters_by_age ON waybill.dead_letters (created_at);
-- At most one of a delivery waits for somebody to decide.
CREATE UNIQUE INDEX dead_letters_open ON waybill.dead_letters (namespace_id, delivery_id) WHERE replayed_at IS NULL;
