-- :hashes bytea[]
--
-- Returns the present generation of the catalog of keys, whether keys are required, and the keys that have one of
-- these secrets. Without any, one row has no key.
SELECT c.generation, c.is_required, s.hash, k.id, k.namespace_id, k.name, k.scopes, k.tag_patterns,
       least(k.expires_at, s.expires_at) AS expires_at, k.revoked_at,
       k.publishes_per_second, k.publish_burst
FROM waybill.key_catalog c
LEFT JOIN (
    unnest(:hashes) AS wanted(hash)
    CROSS JOIN LATERAL (SELECT * FROM waybill.api_key_secrets WHERE hash = wanted.hash OFFSET 0) s
    CROSS JOIN LATERAL (
        SELECT * FROM waybill.api_keys WHERE namespace_id = s.namespace_id AND id = s.key_id OFFSET 0
    ) k
) ON true
