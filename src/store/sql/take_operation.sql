-- :now timestamptz
--
-- Locks the running operation that is due for the longest time and that no other server works on.
SELECT namespace_id, id
FROM waybill.operations
WHERE status = 'RUNNING' AND next_at <= coalesce(:now, now())
ORDER BY next_at
LIMIT 1
FOR UPDATE SKIP LOCKED
