-- :now timestamptz, :days int, :max_rows bigint
--
-- Deletes up to :max_rows replays that ended more than :days days ago, the oldest first.
DELETE FROM waybill.replay_jobs
WHERE id IN (
    SELECT id
    FROM waybill.replay_jobs
    WHERE status <> 'RUNNING' AND updated_at < coalesce(:now, now()) - make_interval(hours => 24 * :days)
    ORDER BY id
    LIMIT :max_rows
)
