-- :namespace_id int, :event_id bigint, :max_rows bigint
--
-- Returns the first :max_rows entries of an event, oldest first.
SELECT id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, execution_time_ms, error_message,
       reason, next_retry_at, error_kind, response_excerpt, subscription_version, actor, lease_seconds, created_at
FROM waybill.event_trails
WHERE namespace_id = :namespace_id AND event_id = :event_id
  -- Partitions more than a day older than the event are not searched. The day of margin is for a database whose
  -- clock was set back.
  AND created_at >= coalesce((SELECT e.created_at - interval '1 day' FROM waybill.events e
                                WHERE e.namespace_id = :namespace_id AND e.id = :event_id), '-infinity')
ORDER BY id
LIMIT :max_rows
