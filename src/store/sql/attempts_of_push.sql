-- :namespace_id int, :delivery_id bigint, :published_at timestamptz, :max_rows bigint
--
-- Returns the last :max_rows attempts of a push, the latest first. Partitions more than a day older than the
-- publication of its event are not searched. The day of margin is for a database whose clock was set back.
--
-- The conditions of the inner query are those of the index event_log_of_pushes. OFFSET 0 keeps the planner
-- from walking another index in the order of ids.
SELECT id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, execution_time_ms, error_message,
       reason, next_retry_at, error_kind, response_excerpt, subscription_version, actor, lease_seconds, created_at
FROM (
    SELECT * FROM waybill.event_log
    WHERE namespace_id = :namespace_id AND delivery_id = :delivery_id AND delivery_id IS NOT NULL AND action <> 'PICKED'
      AND created_at >= :published_at - interval '1 day'
    OFFSET 0
) l
WHERE worker_id IS NOT NULL AND action IN ('COMPLETED', 'FAILED')
ORDER BY id DESC
LIMIT :max_rows
