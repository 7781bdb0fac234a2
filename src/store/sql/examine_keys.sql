-- :now timestamptz, :max_rows bigint, :within_seconds double precision
--
-- Returns the keys that end within :within_seconds, the first first.
SELECT json_build_object('keys', coalesce(json_agg(json_build_object(
    'namespace', n.name, 'id', k.id, 'name', k.name, 'seconds', k.seconds
) ORDER BY k.seconds, k.id), '[]'))::text AS facts
FROM (
    SELECT namespace_id, id, name, extract(epoch FROM expires_at - coalesce(:now, now()))::float8 AS seconds
    FROM waybill.api_keys
    WHERE (revoked_at IS NOT NULL OR expires_at IS NOT NULL) AND revoked_at IS NULL
      AND least(revoked_at, expires_at) > coalesce(:now, now())
      AND least(revoked_at, expires_at) <= coalesce(:now, now()) + make_interval(secs => :within_seconds)
    ORDER BY least(revoked_at, expires_at)
    LIMIT :max_rows
) k
JOIN waybill.namespaces n ON n.id = k.namespace_id
