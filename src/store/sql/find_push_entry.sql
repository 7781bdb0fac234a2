-- :namespace_id int, :event_id bigint, :delivery_id bigint, :lease_id bigint, :action text
--
-- Returns the entry of :action that the dispatcher logged under a claim of a push.
--
-- Partitions more than a day older than the event are not searched. The day of margin is for a database whose clock
-- was set back.
--
-- The conditions of the inner query are those of the index event_log_of_pushes. OFFSET 0 keeps the planner
-- from walking another index in the order of ids.
SELECT id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, execution_time_ms, error_message,
       reason, next_retry_at, error_kind, response_excerpt, subscription_version, actor, lease_seconds, created_at
FROM (
    SELECT * FROM waybill.event_log
    WHERE namespace_id = :namespace_id AND delivery_id = :delivery_id AND delivery_id IS NOT NULL AND action <> 'PICKED'
      AND created_at >= coalesce((SELECT e.created_at - interval '1 day' FROM waybill.events e
                                    WHERE e.namespace_id = :namespace_id AND e.id = :event_id), '-infinity')
    OFFSET 0
) l
WHERE worker_id IS NOT NULL AND lease_id = :lease_id AND action = :action::waybill.action
ORDER BY id DESC
LIMIT 1
