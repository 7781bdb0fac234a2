-- :namespace_id int, :event_id bigint, :max_rows bigint
--
-- Returns the first :max_rows settlements of an event that were refused, oldest first.
SELECT lease_id, action, code, worker_id, actor, calls, first_at, last_at
FROM waybill.refused_settlements
WHERE namespace_id = :namespace_id AND event_id = :event_id
ORDER BY first_at, lease_id, action, code, worker_id
LIMIT :max_rows
