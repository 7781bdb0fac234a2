-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows idempotency keys that expired more than :seconds seconds ago, the oldest first.
DELETE FROM waybill.idempotency_keys
WHERE (namespace_id, origin, key) IN (
    SELECT namespace_id, origin, key
    FROM waybill.idempotency_keys
    WHERE expires_at < coalesce(:now, now()) - make_interval(secs => :seconds)
    ORDER BY expires_at
    LIMIT :max_rows
)
