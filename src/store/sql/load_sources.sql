-- :token_hashes bytea[]
--
-- Returns the present generation of the catalog of sources, and the active sources with one of these tokens: a row for
-- each of their secrets, or one without a secret. Without any source, one row has none.
SELECT c.generation, s.token_hash, s.namespace_id, s.id, s.spec, x.secret, x.expires_at
FROM waybill.source_catalog c
LEFT JOIN (
    unnest(:token_hashes) AS wanted(token_hash)
    CROSS JOIN LATERAL (
        SELECT * FROM waybill.sources WHERE token_hash = wanted.token_hash AND is_active OFFSET 0
    ) s
    LEFT JOIN LATERAL (
        SELECT * FROM waybill.source_secrets WHERE namespace_id = s.namespace_id AND source_id = s.id OFFSET 0
    ) x ON true
) ON true
