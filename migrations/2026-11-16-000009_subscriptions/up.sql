-- WHY: whoever registers here gets events pushed. What a subscriber has set is one document,
-- `spec`, written as a whole and checked by the rules of the program; columns of their own have
-- only what statements look for.
CREATE TABLE waybill.subscriptions (
    id              bigint      PRIMARY KEY DEFAULT nextval('waybill.ids'),
    namespace_id    integer     NOT NULL DEFAULT 1,
    version         integer     NOT NULL DEFAULT 1, -- grows with every change
    url             text        NOT NULL,
    spec            json        NOT NULL,
    is_active       boolean     NOT NULL DEFAULT true,
    inactive_reason text,                           -- why it was switched off, if we did it
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    deleted_at      timestamptz,                    -- kept for the records that point at it
    drained_at      timestamptz,                    -- when the last of its open deliveries was called off
    CONSTRAINT subscriptions_url_is_short CHECK (length(url) BETWEEN 1 AND 2048),
    CONSTRAINT subscriptions_version_counts CHECK (version > 0),
    CONSTRAINT subscriptions_deleted_are_not_active CHECK (deleted_at IS NULL OR NOT is_active),
    CONSTRAINT subscriptions_reason_only_while_inactive CHECK (inactive_reason IS NULL OR NOT is_active)
);

CREATE INDEX subscriptions_to_drain ON waybill.subscriptions (id) WHERE deleted_at IS NOT NULL AND drained_at IS NULL;
CREATE INDEX subscriptions_by_url ON waybill.subscriptions (namespace_id, url) WHERE deleted_at IS NULL;

-- Which subscriptions there are, as one number. A server matches events against a copy that it
-- keeps; whoever publishes names the number of its copy, and stores nothing if it is not the
-- present one any more. Whoever changes a subscription raises it in the same transaction.
CREATE TABLE waybill.subscription_catalog (
    namespace_id integer PRIMARY KEY,
    generation   bigint  NOT NULL
) WITH (fillfactor = 10);

INSERT INTO waybill.subscription_catalog (namespace_id, generation) VALUES (1, 0);

-- What requests are signed with. More than one while a secret is being replaced: an old one
-- is used along with the new one until it expires.
CREATE TABLE waybill.subscription_secrets (
    id              bigint      PRIMARY KEY DEFAULT nextval('waybill.ids'),
    subscription_id bigint      NOT NULL REFERENCES waybill.subscriptions (id),
    secret          text        NOT NULL,
    expires_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now()
);

CREATE UNIQUE INDEX subscription_secrets_present ON waybill.subscription_secrets (subscription_id) WHERE expires_at IS NULL;
CREATE INDEX subscription_secrets_by_subscription ON waybill.subscription_secrets (subscription_id);

-- How the places that requests go to are doing. An endpoint is a URL, however many
-- subscriptions point at it. While `paused_until` is ahead nothing is sent there, by no server.
-- `opened_at` is set while its circuit breaker is open.
CREATE TABLE waybill.endpoints (
    namespace_id    integer     NOT NULL DEFAULT 1,
    url             text        NOT NULL,
    failures_in_row integer     NOT NULL DEFAULT 0,
    opened_at       timestamptz,
    paused_until    timestamptz,
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace_id, url),
    CONSTRAINT endpoints_open_ones_are_paused CHECK (opened_at IS NULL OR paused_until IS NOT NULL)
) WITH (fillfactor = 50);

-- Until when the rate of a subscription is used up, for those that have one.
CREATE TABLE waybill.subscription_paces (
    subscription_id bigint      PRIMARY KEY,
    used_until      timestamptz NOT NULL
) WITH (fillfactor = 50);
