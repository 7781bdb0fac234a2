-- :namespace_id int, :subscription_ids bigint[], :waiting_cap bigint, :scan_rows bigint, :max_pushes bigint,
-- :dead_letter_cap bigint
--
-- Returns how the newest pushes of each subscription went. Of its newest :scan_rows pushes, those that were tried are
-- looked at, up to :max_pushes of them, each by its last attempt. Pushes that can be sent are counted up to
-- :waiting_cap + 1, and dead letters among the newest :dead_letter_cap + 1.
--
-- A push changes when an attempt ends, so the entry of its last attempt is not far from its `updated_at`; a day of margin
-- is for clocks that were set back. That leaves one or two partitions of the log. The ranges over both columns of an
-- index, in its order, keep the planner from walking another one.
SELECT s.id AS subscription_id, ready.ready, pushes.pending, pushes.attempts, pushes.succeeded,
       pushes.p50_ms, pushes.p95_ms, pushes.last_attempt_at, letters.dead_letters
FROM unnest(:subscription_ids) AS s(id)
CROSS JOIN LATERAL (
    SELECT count(*) AS ready
    FROM (SELECT 1 FROM waybill.ready
          WHERE namespace_id = :namespace_id AND queue = ('s:' || s.id) COLLATE "C"
          LIMIT :waiting_cap + 1) r
) ready
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE newest.is_pending) AS pending,
           count(attempt.action) AS attempts,
           count(*) FILTER (WHERE attempt.action = 'COMPLETED') AS succeeded,
           percentile_disc(0.5) WITHIN GROUP (ORDER BY attempt.execution_time_ms) AS p50_ms,
           percentile_disc(0.95) WITHIN GROUP (ORDER BY attempt.execution_time_ms) AS p95_ms,
           max(attempt.created_at) AS last_attempt_at
    FROM (SELECT d.id, d.updated_at, d.is_pending,
                 d.is_tried AND row_number() OVER (PARTITION BY d.is_tried ORDER BY d.id DESC) <= :max_pushes AS is_looked_at
          FROM (SELECT id, updated_at, lease_id > 0 AS is_tried, status = 'PENDING' AS is_pending
                FROM waybill.deliveries
                WHERE namespace_id = :namespace_id
                  AND subscription_id >= s.id AND subscription_id <= s.id AND subscription_id > 0
                ORDER BY namespace_id DESC, subscription_id DESC, id DESC
                LIMIT :scan_rows) d) newest
    LEFT JOIN LATERAL (
        SELECT l.action, l.execution_time_ms, l.created_at
        FROM (SELECT id, action, execution_time_ms, created_at, worker_id FROM waybill.event_log
              WHERE namespace_id = :namespace_id AND delivery_id = newest.id AND delivery_id IS NOT NULL
                AND action <> 'PICKED'
                AND created_at >= newest.updated_at - interval '1 day'
                AND created_at <= newest.updated_at + interval '1 day'
              OFFSET 0) l
        WHERE newest.is_looked_at AND l.worker_id IS NOT NULL AND l.action IN ('COMPLETED', 'FAILED')
        ORDER BY l.id DESC
        LIMIT 1
    ) attempt ON true
) pushes
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE replayed_at IS NULL) AS dead_letters
    FROM (SELECT replayed_at FROM waybill.dead_letters
          WHERE namespace_id = :namespace_id AND subscription_id >= s.id AND subscription_id <= s.id
          ORDER BY namespace_id DESC, subscription_id DESC, id DESC
          LIMIT :dead_letter_cap + 1) l
) letters
