-- :id bigint, :now timestamptz, :replayed bigint, :skipped bigint, :last_id bigint, :is_done boolean
--
-- Adds the result of one round to a replay. The time of the next round follows from its rate; a late round is made
-- up for by at most one second.
UPDATE waybill.replay_jobs
SET replayed = replayed + :replayed, skipped = skipped + :skipped, last_id = :last_id,
    status = CASE WHEN :is_done THEN 'DONE' ELSE status END,
    next_at = greatest(next_at, coalesce(:now, now()) - interval '1 second')
              + make_interval(secs => :replayed / rate_per_second),
    updated_at = coalesce(:now, now())
WHERE id = :id
