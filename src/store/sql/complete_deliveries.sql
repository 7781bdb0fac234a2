-- The short way for the common case: a worker completes what it holds, and no ordering key is
-- involved. The guard is in the WHERE; whatever it does not let through is not touched, and
-- is judged the long way. Each event comes once. A row is addressed by the place at which it was
-- found; one that somebody changes at this very moment may not be there any more, and is judged, too.
-- Pushes that are done are counted on their event's own row (see roll_up.sql), always after the
-- deliveries and in the order of events, so that nobody waits in a circle. (`= ANY (ARRAY[…])` is
-- an equality that the planner does not turn around: it looks up each event, always.)
WITH input AS MATERIALIZED (
    SELECT * FROM unnest($3, $4, $5, $6, $7, $8, $9, $10) WITH ORDINALITY
         AS t(id, lease_id, worker_id, status_code, execution_time_ms, result, response_excerpt, subscription_version, ord)
    ORDER BY id
),
found AS MATERIALIZED (
    SELECT i.*, d.place
    FROM input i CROSS JOIN LATERAL (
        SELECT ctid AS place FROM waybill.deliveries WHERE id = i.id OFFSET 0
    ) d
),
completed AS (
    UPDATE waybill.deliveries d
    SET status = 'COMPLETED', lease_expires_at = NULL, started_at = NULL, expires_at = NULL,
        settled_lease_id = d.lease_id, settled_action = 'COMPLETED', result = i.result,
        updated_at = coalesce($2, now())
    FROM found i
    WHERE d.ctid = i.place
      AND d.status = 'PROCESSING'
      AND d.ordering_key IS NULL
      AND (d.subscription_id IS NULL) = (i.subscription_version IS NULL)
      AND d.worker_id = i.worker_id
      AND (i.lease_id IS NULL OR d.lease_id = i.lease_id)
    RETURNING i.ord, nextval('waybill.event_log_ids') AS id, d.event_id, d.id AS delivery_id, 'COMPLETED' AS action,
              i.worker_id, d.lease_id, d.retry_count + 1 AS attempt, i.status_code, i.execution_time_ms,
              i.response_excerpt, i.subscription_version, d.updated_at AS created_at, d.retry_count, d.max_retries
),
done AS MATERIALIZED (
    SELECT event_id, count(*)::integer AS pushes FROM completed WHERE delivery_id <> event_id
    GROUP BY event_id ORDER BY event_id
),
rolled_up AS (
    UPDATE waybill.deliveries o
    SET open_deliveries = o.open_deliveries - done.pushes,
        status = CASE WHEN o.open_deliveries > done.pushes THEN 'PENDING'
                      WHEN o.failed_deliveries > 0 THEN 'FAILED'
                      WHEN o.cancel_requested THEN 'CANCELLED'
                      ELSE 'COMPLETED' END,
        updated_at = coalesce($2, now())
    FROM done
    WHERE o.id = ANY (ARRAY[done.event_id]) AND o.open_deliveries IS NOT NULL
),
logged AS (
    INSERT INTO waybill.event_log
           (id, namespace_id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code,
            execution_time_ms, response_excerpt, subscription_version, created_at)
    SELECT id, $1, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code,
           execution_time_ms, response_excerpt, subscription_version, created_at
    FROM completed
)
SELECT ord, id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, execution_time_ms,
       NULL::text AS error_message, NULL::text AS reason, NULL::timestamptz AS next_retry_at, NULL::text AS error_kind,
       response_excerpt, subscription_version, created_at,
       retry_count, max_retries
FROM completed
