-- Appends lines to the audit trail, numbered in the order given. Columns that only pushes use
-- come as NULL where there are none.
INSERT INTO waybill.event_log
       (namespace_id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code,
        execution_time_ms, error_message, reason, next_retry_at, error_kind, response_excerpt,
        subscription_version, created_at)
SELECT $1, t.event_id, t.delivery_id, t.action, t.worker_id, t.lease_id, t.attempt, t.status_code,
       t.execution_time_ms, t.error_message, t.reason, t.next_retry_at, t.error_kind, t.response_excerpt,
       t.subscription_version, coalesce($2, now())
FROM unnest($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) WITH ORDINALITY
     AS t(event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, execution_time_ms,
          error_message, reason, next_retry_at, error_kind, response_excerpt, subscription_version, ord)
ORDER BY t.ord
RETURNING id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, execution_time_ms,
          error_message, reason, next_retry_at, error_kind, response_excerpt, subscription_version, created_at
