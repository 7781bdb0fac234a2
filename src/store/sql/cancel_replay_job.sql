-- :namespace_id int, :id bigint, :now timestamptz
--
-- Stops a replay that is still running.
UPDATE waybill.replay_jobs SET status = 'CANCELLED', updated_at = coalesce(:now, now())
WHERE namespace_id = :namespace_id AND id = :id AND status = 'RUNNING'
