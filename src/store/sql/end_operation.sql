-- :namespace_id int, :id bigint, :now timestamptz, :status text
--
-- Ends an operation that is still running, before it is complete. An event that it has begun is counted by what was done with it so far.
UPDATE waybill.operations
SET status = :status, finished_at = coalesce(:now, now()),
    failed = failed + CASE WHEN part_has_failed THEN 1 ELSE 0 END,
    done = done + CASE WHEN part_is_changed AND NOT part_has_failed THEN 1 ELSE 0 END,
    part_of = NULL, part_last_id = NULL, part_is_changed = false, part_has_failed = false
WHERE namespace_id = :namespace_id AND id = :id AND status = 'RUNNING'
