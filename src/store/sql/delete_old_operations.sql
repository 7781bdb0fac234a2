-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows operations that ended more than :seconds seconds ago, the oldest first.
DELETE FROM waybill.operations
WHERE (namespace_id, id) IN (
    SELECT namespace_id, id
    FROM waybill.operations
    WHERE finished_at < coalesce(:now, now()) - make_interval(secs => :seconds)
    ORDER BY finished_at
    LIMIT :max_rows
)
