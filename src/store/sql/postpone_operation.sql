-- :namespace_id int, :id bigint, :now timestamptz, :seconds float8
--
-- Lets the next step of an operation wait, so that one whose steps fail does not keep the others from theirs. The count of
-- failed steps ends at 16: with it even the largest step is down to one row.
UPDATE waybill.operations
SET next_at = coalesce(:now, now()) + make_interval(secs => :seconds), failed_steps = least(failed_steps + 1, 16)
WHERE namespace_id = :namespace_id AND id = :id AND status = 'RUNNING'
