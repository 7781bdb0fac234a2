-- :id bigint, :now timestamptz, :seconds float8
--
-- Lets the next step of an operation wait, so that one whose steps fail does not keep the others from theirs.
UPDATE waybill.operations SET next_at = coalesce(:now, now()) + make_interval(secs => :seconds)
WHERE id = :id AND status = 'RUNNING'
