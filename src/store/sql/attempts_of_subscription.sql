-- :namespace_id int, :subscription_id bigint, :scan_rows bigint, :max_pushes bigint, :max_rows bigint
--
-- Returns the last :max_rows attempts of the newest pushes of a subscription, the latest first: of its newest :scan_rows
-- pushes, up to :max_pushes that were tried. Attempts more than a day before the last change of a push are left out:
-- that leaves one or two partitions of the log to search.
SELECT l.id, l.event_id, l.delivery_id, l.action, l.worker_id, l.lease_id, l.attempt, l.status_code, l.execution_time_ms,
       l.error_message, l.reason, l.next_retry_at, l.error_kind, l.response_excerpt, l.subscription_version, l.actor,
       l.lease_seconds, l.created_at
FROM (SELECT d.id, d.updated_at
      FROM (SELECT id, updated_at, lease_id FROM waybill.deliveries
            WHERE namespace_id = :namespace_id
              AND subscription_id >= :subscription_id AND subscription_id <= :subscription_id AND subscription_id > 0
            ORDER BY namespace_id DESC, subscription_id DESC, id DESC
            LIMIT :scan_rows) d
      WHERE d.lease_id > 0
      ORDER BY d.id DESC
      LIMIT :max_pushes) newest
CROSS JOIN LATERAL (
    SELECT * FROM waybill.event_log
    WHERE namespace_id = :namespace_id AND delivery_id = newest.id AND delivery_id IS NOT NULL AND action <> 'PICKED'
      AND created_at >= newest.updated_at - interval '1 day'
      AND created_at <= newest.updated_at + interval '1 day'
    OFFSET 0
) l
WHERE l.worker_id IS NOT NULL AND l.action IN ('COMPLETED', 'FAILED')
ORDER BY l.id DESC
LIMIT :max_rows
