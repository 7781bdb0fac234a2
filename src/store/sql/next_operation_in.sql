-- :now timestamptz
--
-- Returns the seconds until the next step of any operation.
SELECT extract(epoch FROM min(next_at) - coalesce(:now, now()))::float8 AS seconds
FROM waybill.operations WHERE status = 'RUNNING'
