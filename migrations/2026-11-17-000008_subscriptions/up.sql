-- WHY: whoever registers here gets events pushed. What a subscriber has set is one document, `spec`, written as a
-- whole and validated by the program; only what statements look for has a column of its own.
CREATE TABLE waybill.subscriptions (
    id              bigint      NOT NULL DEFAULT nextval('waybill.ids'),
    namespace_id    integer     NOT NULL DEFAULT 1,
    version         integer     NOT NULL DEFAULT 1, -- grows with every change
    url             text        NOT NULL,
    spec            json        NOT NULL,
    is_active       boolean     NOT NULL DEFAULT true,
    inactive_reason text,                           -- why the server switched it off, if it did
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    deleted_at      timestamptz,                    -- kept for the records that point at it
    drained_at      timestamptz,                    -- when the last of its open pushes was cancelled
    PRIMARY KEY (namespace_id, id),
    CONSTRAINT subscriptions_url_is_short CHECK (length(url) BETWEEN 1 AND 2048),
    CONSTRAINT subscriptions_version_counts CHECK (version > 0),
    CONSTRAINT subscriptions_deleted_are_not_active CHECK (deleted_at IS NULL OR NOT is_active),
    CONSTRAINT subscriptions_reason_only_while_inactive CHECK (inactive_reason IS NULL OR NOT is_active)
);

CREATE INDEX subscriptions_to_drain ON waybill.subscriptions (namespace_id, id)
    WHERE deleted_at IS NOT NULL AND drained_at IS NULL;
CREATE INDEX subscriptions_by_url ON waybill.subscriptions (namespace_id, url) WHERE deleted_at IS NULL;

-- Which subscriptions there are, as one number. A server matches events against a snapshot that it keeps; a publish
-- names the generation of its snapshot, and stores nothing if it is no longer the current one. Every change of a
-- subscription gives the catalog another generation in the same transaction.
--
-- Generations are random: numbers that count would be the same again after a restore and as many changes, and a
-- server that still has the snapshot from before would take it for the current one.
CREATE FUNCTION waybill.random_generation() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT hashtextextended(gen_random_uuid()::text, 0) & 9223372036854775807
$$;

CREATE TABLE waybill.subscription_catalog (
    namespace_id integer PRIMARY KEY,
    generation   bigint  NOT NULL
) WITH (fillfactor = 10);

INSERT INTO waybill.subscription_catalog (namespace_id, generation) VALUES (1, waybill.random_generation());

-- What requests are signed with. More than one while a secret is being replaced: the old one is used along with the
-- new one until it expires.
CREATE TABLE waybill.subscription_secrets (
    id              bigint      NOT NULL DEFAULT nextval('waybill.ids'),
    namespace_id    integer     NOT NULL DEFAULT 1,
    subscription_id bigint      NOT NULL,
    secret          text        NOT NULL,
    expires_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace_id, subscription_id, id),
    FOREIGN KEY (namespace_id, subscription_id) REFERENCES waybill.subscriptions (namespace_id, id)
);

CREATE UNIQUE INDEX subscription_secrets_current ON waybill.subscription_secrets (namespace_id, subscription_id)
    WHERE expires_at IS NULL;

-- The state of the endpoints that requests go to. An endpoint is a URL, however many subscriptions name it. While
-- `paused_until` is in the future no server sends anything there. `opened_at` is set while its circuit breaker is open.
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

CREATE INDEX endpoints_by_age ON waybill.endpoints (updated_at);

-- The rate limiters of subscriptions that have one: the time until which the rate is used up.
CREATE TABLE waybill.subscription_rates (
    namespace_id    integer     NOT NULL DEFAULT 1,
    subscription_id bigint      NOT NULL,
    used_until      timestamptz NOT NULL,
    PRIMARY KEY (namespace_id, subscription_id)
) WITH (fillfactor = 50);

-- A filter that would have to look at more of an event than it may counts as not matching, and its owner must be able
-- to see that. The counts have a table of their own: the row of a subscription is locked by every publish to it.
CREATE TABLE waybill.filter_overruns (
    namespace_id    integer     NOT NULL DEFAULT 1,
    subscription_id bigint      NOT NULL,
    events          bigint      NOT NULL, -- the number of events for which it did
    last_at         timestamptz NOT NULL, -- when the latest of them was published
    last_event_id   bigint      NOT NULL,
    PRIMARY KEY (namespace_id, subscription_id),
    CONSTRAINT filter_overruns_count_events CHECK (events > 0)
) WITH (fillfactor = 50);
