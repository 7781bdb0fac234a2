-- :now timestamptz
--
-- Locks a running replay that is due and that no other server works on.
SELECT id, status, filter, config, rate_per_second, requested_by, matched, replayed, skipped, last_id, until_id, created_at,
       updated_at
FROM waybill.replay_jobs
WHERE status = 'RUNNING' AND next_at <= coalesce(:now, now())
ORDER BY next_at
LIMIT 1
FOR UPDATE SKIP LOCKED
