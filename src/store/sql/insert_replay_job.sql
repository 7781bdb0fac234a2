-- :namespace_id int, :now timestamptz, :filter json, :config text, :rate_per_second float8,
-- :requested_by text, :matched bigint, :until_id bigint
--
-- Stores a replay of many dead letters.
INSERT INTO waybill.replay_jobs
       (namespace_id, filter, config, rate_per_second, requested_by, matched, until_id, next_at, created_at, updated_at)
SELECT :namespace_id, :filter, :config, :rate_per_second, :requested_by, :matched, :until_id, t.now, t.now, t.now
FROM (SELECT coalesce(:now, now()) AS now) t
RETURNING id, status, filter, config, rate_per_second, requested_by, matched, replayed, skipped, last_id, until_id, created_at,
          updated_at
