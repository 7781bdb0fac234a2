-- :namespace_id int, :now timestamptz, :id bigint, :hash bytea, :prefix text, :overlap_seconds double precision
--
-- Gives a key a new secret. The others, and its sessions, stay good for :overlap_seconds, unless they end earlier.
-- Returns the number of secrets that were good before, without those of sessions.
WITH t AS (
    SELECT coalesce(:now, now()) AS now
),
replaced AS (
    UPDATE waybill.api_key_secrets s
    SET expires_at = least(s.expires_at, t.now + make_interval(secs => :overlap_seconds))
    FROM t
    WHERE s.namespace_id = :namespace_id AND s.key_id = :id AND (s.expires_at IS NULL OR s.expires_at > t.now)
    RETURNING s.is_session
),
made AS (
    INSERT INTO waybill.api_key_secrets (hash, namespace_id, key_id, prefix, created_at)
    SELECT :hash, :namespace_id, :id, :prefix, t.now FROM t
)
SELECT count(*) FILTER (WHERE NOT is_session) AS count FROM replaced
