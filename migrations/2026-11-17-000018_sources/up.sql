-- WHY: other systems announce what happens there by webhooks of their own form. A source is a URL that takes them as
-- they are. What its owner has set is one document, `spec`, written as a whole and validated by the program; only what
-- statements look for has a column of its own.
--
-- The URL contains a token that nobody can guess. A webhook is looked up by the hash of the token, and the token itself
-- is kept for those who may see it, encrypted like a secret.
CREATE TABLE waybill.sources (
    id              bigint      NOT NULL DEFAULT nextval('waybill.ids'),
    namespace_id    integer     NOT NULL DEFAULT 1,
    version         integer     NOT NULL DEFAULT 1, -- grows with every change
    token_hash      bytea       NOT NULL,           -- the SHA-256 of the token
    token           text        NOT NULL,
    spec            json        NOT NULL,
    is_active       boolean     NOT NULL DEFAULT true,
    refused         bigint      NOT NULL DEFAULT 0, -- the number of webhooks that were not its sender's
    last_refused_at timestamptz,                    -- coarse, like the number: written in batches
    last_refusal    text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace_id, id),
    CONSTRAINT sources_version_counts CHECK (version > 0),
    CONSTRAINT sources_hash_is_sha_256 CHECK (octet_length(token_hash) = 32),
    CONSTRAINT sources_refusals_have_a_time CHECK ((refused > 0) = (last_refused_at IS NOT NULL))
);

CREATE UNIQUE INDEX sources_token_is_unique ON waybill.sources (token_hash);

-- What the senders sign with. More than one while a secret is being replaced: the old one is accepted along with the
-- new one until it expires.
CREATE TABLE waybill.source_secrets (
    id           bigint      NOT NULL DEFAULT nextval('waybill.ids'),
    namespace_id integer     NOT NULL DEFAULT 1,
    source_id    bigint      NOT NULL,
    secret       text        NOT NULL,
    expires_at   timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace_id, source_id, id),
    CONSTRAINT source_secrets_are_of_a_source
        FOREIGN KEY (namespace_id, source_id) REFERENCES waybill.sources (namespace_id, id) ON DELETE CASCADE
);

CREATE UNIQUE INDEX source_secrets_current ON waybill.source_secrets (namespace_id, source_id)
    WHERE expires_at IS NULL;

-- Servers keep sources in memory. Every change of a source gives the catalog another generation, by which they notice
-- what they have missed, and sends them a notification. Servers of the version before do not know it, and look for new
-- work instead.
CREATE TABLE waybill.source_catalog (
    is_only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT source_catalog_is_one_row CHECK (is_only_row),
    generation  bigint  NOT NULL
);

INSERT INTO waybill.source_catalog (generation) VALUES (waybill.random_generation());
