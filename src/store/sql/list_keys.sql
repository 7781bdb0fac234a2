-- :namespace_id int, :now timestamptz, :first bigint, :last bigint, :descending boolean, :max_rows bigint
--
-- Returns a page of keys with ids from :first to :last in the order of their ids, each with the first characters of
-- its newest secret, the number of its secrets that are good, and the number of its sessions. Either branch reads the
-- index in its own direction.
SELECT k.id, n.name AS namespace, k.name, s.prefix, k.scopes, k.tag_patterns, k.expires_at, k.revoked_at,
       k.last_used_at, k.created_at, k.created_by, s.secrets, s.sessions,
       k.publishes_per_second, k.publish_burst
FROM (
    (SELECT * FROM waybill.api_keys
     WHERE namespace_id = :namespace_id AND id BETWEEN :first AND :last AND NOT :descending
     ORDER BY id LIMIT :max_rows)
    UNION ALL
    (SELECT * FROM waybill.api_keys
     WHERE namespace_id = :namespace_id AND id BETWEEN :first AND :last AND :descending
     ORDER BY id DESC LIMIT :max_rows)
) k
JOIN waybill.namespaces n ON n.id = k.namespace_id
CROSS JOIN LATERAL (
    SELECT coalesce((array_agg(prefix ORDER BY expires_at IS NOT NULL, created_at DESC) FILTER (WHERE NOT is_session))[1], '') AS prefix,
           count(*) FILTER (WHERE NOT is_session AND is_good) AS secrets,
           count(*) FILTER (WHERE is_session AND is_good) AS sessions
    FROM (
        SELECT prefix, created_at, expires_at, is_session,
               expires_at IS NULL OR expires_at > coalesce(:now, now()) AS is_good
        FROM waybill.api_key_secrets
        WHERE namespace_id = k.namespace_id AND key_id = k.id
    ) secret
) s
ORDER BY CASE WHEN :descending THEN -k.id ELSE k.id END
