-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows keys that were revoked or expired more than :seconds seconds ago, with their secrets.
DELETE FROM waybill.api_keys
WHERE (namespace_id, id) IN (
    SELECT namespace_id, id
    FROM waybill.api_keys
    WHERE least(revoked_at, expires_at) < coalesce(:now, now()) - make_interval(secs => :seconds)
      AND (revoked_at IS NOT NULL OR expires_at IS NOT NULL)
    ORDER BY least(revoked_at, expires_at)
    LIMIT :max_rows
)
