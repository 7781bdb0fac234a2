-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows entries of the audit log that are older than :seconds seconds, the oldest first.
DELETE FROM waybill.audit_log
WHERE (namespace_id, id) IN (
    SELECT namespace_id, id
    FROM waybill.audit_log
    WHERE created_at < coalesce(:now, now()) - make_interval(secs => :seconds)
    ORDER BY created_at
    LIMIT :max_rows
)
