-- :now timestamptz
--
-- Returns the seconds until the next round of any replay.
SELECT extract(epoch FROM min(next_at) - coalesce(:now, now()))::float8 AS seconds
FROM waybill.replay_jobs WHERE status = 'RUNNING'
