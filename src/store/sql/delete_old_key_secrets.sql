-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows secrets of keys that were replaced and ended more than :seconds seconds ago.
DELETE FROM waybill.api_key_secrets
WHERE hash IN (
    SELECT hash
    FROM waybill.api_key_secrets
    WHERE expires_at < coalesce(:now, now()) - make_interval(secs => :seconds)
    ORDER BY expires_at
    LIMIT :max_rows
)
