-- WHY: whoever calls must be known by a key before they may do anything. A key may have several secrets
-- while it is rotated, so secrets are rows of their own: a request is looked up by one unique index, that of
-- the hash, whichever secret it carries. The secrets themselves are stored nowhere.
--
-- Servers keep keys in memory. Every change of a key gives the catalog another generation, by which they
-- notice what they have missed, and sends them a notification.
CREATE TABLE waybill.api_keys (
    id           bigint      NOT NULL DEFAULT nextval('waybill.ids'),
    namespace_id integer     NOT NULL DEFAULT 1,
    name         text        NOT NULL,
    scopes       text[]      NOT NULL,
    tag_patterns text[],                               -- the tags to publish to and work on; null: all
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,                          -- coarse: written in batches
    created_at   timestamptz NOT NULL,
    created_by   text,                                 -- the name of the key that made it; null: nobody known
    PRIMARY KEY (namespace_id, id),
    CONSTRAINT api_keys_name_is_short CHECK (length(name) BETWEEN 1 AND 100),
    CONSTRAINT api_keys_scopes_are_some CHECK (cardinality(scopes) > 0),
    CONSTRAINT api_keys_patterns_are_some CHECK (cardinality(tag_patterns) > 0)
);

-- The name is the actor in logs and records, so two keys in use never share one.
CREATE UNIQUE INDEX api_keys_name_is_unique ON waybill.api_keys (namespace_id, name) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_by_age ON waybill.api_keys (least(revoked_at, expires_at))
    WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;

CREATE TABLE waybill.api_key_secrets (
    hash         bytea       PRIMARY KEY,              -- the SHA-256 of the secret
    namespace_id integer     NOT NULL,
    key_id       bigint      NOT NULL,
    prefix       text        NOT NULL,                 -- its first characters, for display
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,                          -- the end of the overlap, once it is replaced
    CONSTRAINT api_key_secrets_are_of_a_key
        FOREIGN KEY (namespace_id, key_id) REFERENCES waybill.api_keys (namespace_id, id) ON DELETE CASCADE,
    CONSTRAINT api_key_secrets_hash_is_sha_256 CHECK (octet_length(hash) = 32)
);

CREATE INDEX api_key_secrets_by_key ON waybill.api_key_secrets (namespace_id, key_id);
CREATE INDEX api_key_secrets_by_age ON waybill.api_key_secrets (expires_at) WHERE expires_at IS NOT NULL;

-- `is_required` turns true with the first key and stays so: when the last key is revoked, or removed because
-- of its age, the servers must not open again.
CREATE TABLE waybill.key_catalog (
    is_only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT key_catalog_has_one_row CHECK (is_only_row),
    generation  bigint  NOT NULL,
    is_required boolean NOT NULL DEFAULT false
);

INSERT INTO waybill.key_catalog (generation) VALUES (waybill.random_generation());
