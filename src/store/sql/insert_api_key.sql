-- :namespace_id int, :now timestamptz, :name text, :scopes text[], :tag_patterns text[], :expires_at timestamptz,
-- :created_by text, :publishes_per_second int, :publish_burst int, :hash bytea, :prefix text, :max_keys bigint
--
-- Stores a key with its first secret, unless a key of that name is in use or :max_keys are. Returns its id. From
-- now on the servers require keys; they are told when the statement commits. Call it after renew_key_generation.sql in
-- a transaction: keys are counted in the snapshot of this statement, which must not be older than the lock.
WITH catalog AS (
    UPDATE waybill.key_catalog SET generation = waybill.random_generation(), is_required = true RETURNING generation
),
made AS (
    INSERT INTO waybill.api_keys
           (namespace_id, name, scopes, tag_patterns, expires_at, created_at, created_by,
            publishes_per_second, publish_burst)
    SELECT :namespace_id, :name, :scopes, :tag_patterns, :expires_at, coalesce(:now, now()), :created_by,
           :publishes_per_second, :publish_burst
    FROM catalog
    WHERE (SELECT count(*) FROM waybill.api_keys WHERE namespace_id = :namespace_id AND revoked_at IS NULL) < :max_keys
    ON CONFLICT (namespace_id, name) WHERE revoked_at IS NULL DO NOTHING
    RETURNING id, namespace_id, created_at
),
secret AS (
    INSERT INTO waybill.api_key_secrets (hash, namespace_id, key_id, prefix, created_at)
    SELECT :hash, namespace_id, id, :prefix, created_at FROM made
)
SELECT id FROM made CROSS JOIN LATERAL (SELECT pg_notify('waybill_ready', 'keys')) AS told
