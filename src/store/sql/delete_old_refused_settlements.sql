-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows refused settlements whose last call was more than :seconds seconds ago, the oldest first.
DELETE FROM waybill.refused_settlements
WHERE (namespace_id, event_id, lease_id, action, code, worker_id) IN (
    SELECT namespace_id, event_id, lease_id, action, code, worker_id
    FROM waybill.refused_settlements
    WHERE last_at < coalesce(:now, now()) - make_interval(secs => :seconds)
    ORDER BY last_at
    LIMIT :max_rows
    -- One that is counted again at this moment stays.
    FOR UPDATE SKIP LOCKED
)
