-- :now timestamptz, :namespace_ids int[], :ids bigint[], :lease_ids bigint[], :worker_ids text[], :tag_patterns text[],
-- :status_codes int[], :execution_times_ms bigint[], :results json[], :response_excerpts text[],
-- :subscription_versions int[]
--
-- Completes deliveries that their worker holds and that have no ordering key. Returns the lines that were
-- logged. A delivery that does not meet the conditions of `completed` is not changed and not returned: the
-- caller then loads it and decides. Each delivery must be given once.
--
-- Rows are updated by the ctid at which they were found. A row that is changed concurrently may have a new
-- ctid; it is not returned, either.
--
-- The patterns are the tags that the key of a worker allows (see `TagPatterns`), joined by commas, or null for all
-- tags. Only if they are given are the tags of the event looked at.
--
-- Completed pushes are counted on the roll-up of their event (see roll_up.sql), after the deliveries and in
-- the order of namespaces and event ids, which prevents deadlocks.
WITH input AS MATERIALIZED (
    SELECT * FROM unnest(:namespace_ids, :ids, :lease_ids, :worker_ids, :tag_patterns, :status_codes, :execution_times_ms,
                         :results, :response_excerpts, :subscription_versions) WITH ORDINALITY
         AS t(namespace_id, id, lease_id, worker_id, tag_patterns, status_code, execution_time_ms, result, response_excerpt,
              subscription_version, ord)
    ORDER BY namespace_id, id
),
found AS MATERIALIZED (
    SELECT i.*, d.delivery_ctid
    FROM input i CROSS JOIN LATERAL (
        SELECT ctid AS delivery_ctid FROM waybill.deliveries WHERE namespace_id = i.namespace_id AND id = i.id OFFSET 0
    ) d
),
completed AS (
    UPDATE waybill.deliveries d
    SET status = 'COMPLETED', lease_expires_at = NULL, started_at = NULL, expires_at = NULL,
        settled_lease_id = d.lease_id, settled_action = 'COMPLETED', result = i.result,
        updated_at = coalesce(:now, now())
    FROM found i
    WHERE d.ctid = i.delivery_ctid
      AND d.status = 'PROCESSING'
      AND d.ordering_key IS NULL
      AND (d.subscription_id IS NULL) = (i.subscription_version IS NULL)
      AND d.worker_id = i.worker_id
      AND (i.lease_id IS NULL OR d.lease_id = i.lease_id)
      AND (i.tag_patterns IS NULL OR EXISTS (
          SELECT FROM waybill.events e
          CROSS JOIN LATERAL unnest(string_to_array(e.tags, ',')) AS tag
          CROSS JOIN LATERAL unnest(string_to_array(i.tag_patterns, ',')) AS pattern
          WHERE e.namespace_id = d.namespace_id AND e.id = d.event_id
            AND (tag = pattern OR (pattern LIKE '%.*' AND starts_with(tag, left(pattern, -1))))
          OFFSET 0
      ))
    RETURNING i.ord, nextval('waybill.event_log_ids') AS id, i.namespace_id, d.event_id, nullif(d.id, d.event_id) AS delivery_id, 'COMPLETED'::waybill.action AS action,
              i.worker_id, d.lease_id, d.retry_count + 1 AS attempt, i.status_code, i.execution_time_ms,
              i.response_excerpt, i.subscription_version, d.updated_at AS created_at, d.retry_count, d.max_retries
),
done AS MATERIALIZED (
    SELECT namespace_id, event_id, count(*)::integer AS pushes FROM completed WHERE delivery_id IS NOT NULL
    GROUP BY namespace_id, event_id ORDER BY namespace_id, event_id
),
rolled_up AS (
    UPDATE waybill.deliveries o
    SET open_deliveries = o.open_deliveries - done.pushes,
        status = waybill.roll_up_status(o.open_deliveries - done.pushes, o.failed_deliveries, o.cancel_requested),
        listed_status = waybill.roll_up_status(o.open_deliveries - done.pushes, o.failed_deliveries, o.cancel_requested),
        updated_at = coalesce(:now, now())
    FROM done
    WHERE (o.namespace_id, o.id) >= (done.namespace_id, done.event_id)
      AND (o.namespace_id, o.id) <= (done.namespace_id, done.event_id)
      AND o.open_deliveries IS NOT NULL
),
logged AS (
    INSERT INTO waybill.event_log
           (id, namespace_id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code,
            execution_time_ms, response_excerpt, subscription_version, created_at)
    SELECT id, namespace_id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code,
           execution_time_ms, response_excerpt, subscription_version, created_at
    FROM completed
)
SELECT ord, id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, execution_time_ms,
       NULL::text AS error_message, NULL::text AS reason, NULL::timestamptz AS next_retry_at, NULL::text AS error_kind,
       response_excerpt, subscription_version, NULL::text AS actor, NULL::real AS lease_seconds, created_at,
       retry_count, max_retries
FROM completed
