-- :now timestamptz
--
-- Locks a running replay that is due and that no other server works on.
SELECT * FROM waybill.replay_jobs WHERE status = 'RUNNING' AND next_at <= coalesce(:now, now())
ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED
