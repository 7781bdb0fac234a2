-- :namespace_id int, :id bigint, :now timestamptz
--
-- Stops an operation that is still running.
UPDATE waybill.operations SET status = 'CANCELLED', finished_at = coalesce(:now, now())
WHERE namespace_id = :namespace_id AND id = :id AND status = 'RUNNING'
