-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows workers that were last seen more than :seconds seconds ago, the longest unseen first.
DELETE FROM waybill.workers
WHERE (namespace_id, worker_id) IN (
    SELECT namespace_id, worker_id
    FROM waybill.workers
    WHERE last_seen_at < coalesce(:now, now()) - make_interval(secs => :seconds)
    ORDER BY last_seen_at
    LIMIT :max_rows
    -- One that is used again at this moment stays.
    FOR UPDATE SKIP LOCKED
)
