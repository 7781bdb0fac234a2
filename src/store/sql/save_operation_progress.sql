-- :namespace_id int, :id bigint, :now timestamptz, :handled bigint, :done bigint, :skipped bigint, :failed bigint, :last_id bigint,
-- :part_of bigint, :part_last_id bigint, :part_is_changed boolean, :part_has_failed boolean, :is_complete boolean
--
-- Adds the result of one step to an operation. The time of the next step follows from its rate; a late step is made
-- up for by at most one second.
UPDATE waybill.operations
SET done = done + :done, skipped = skipped + :skipped, failed = failed + :failed, last_id = greatest(last_id, :last_id),
    part_of = :part_of, part_last_id = :part_last_id, part_is_changed = :part_is_changed,
    part_has_failed = :part_has_failed, failed_steps = greatest(failed_steps - 1, 0),
    status = CASE WHEN :is_complete THEN 'COMPLETED' ELSE status END,
    finished_at = CASE WHEN :is_complete THEN coalesce(:now, now()) END,
    started_at = coalesce(started_at, :now, now()),
    next_at = greatest(next_at, coalesce(:now, now()) - interval '1 second')
              + make_interval(secs => :handled / per_second)
WHERE namespace_id = :namespace_id AND id = :id
