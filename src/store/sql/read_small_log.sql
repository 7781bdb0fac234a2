-- :namespace_id int, :most bigint
--
-- Returns up to `:most` entries of a namespace's log from each of the two indexes of trails. Ordered by the columns of
-- the index, so that no other one is chosen.
(SELECT id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, execution_time_ms, error_message,
        reason, next_retry_at, error_kind, response_excerpt, subscription_version, actor, lease_seconds, created_at
 FROM waybill.event_log
 WHERE namespace_id = :namespace_id AND (delivery_id IS NOT NULL OR action <> 'COMPLETED')
 ORDER BY event_id, id
 LIMIT :most)
UNION ALL
(SELECT id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, execution_time_ms, error_message,
        reason, next_retry_at, error_kind, response_excerpt, subscription_version, actor, lease_seconds, created_at
 FROM waybill.event_log
 WHERE namespace_id = :namespace_id AND delivery_id IS NULL AND action = 'COMPLETED'
 ORDER BY event_id, id
 LIMIT :most)
