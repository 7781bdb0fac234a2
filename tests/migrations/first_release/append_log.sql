-- :namespace_id int, :now timestamptz, :event_ids bigint[], :delivery_ids bigint[], :actions text[],
-- :worker_ids text[], :lease_ids bigint[], :attempts int[], :status_codes int[],
-- :execution_times_ms bigint[], :error_messages text[], :reasons text[], :next_retry_times timestamptz[],
-- :error_kinds text[], :response_excerpts text[], :subscription_versions int[]
--
-- Appends lines to the event log, with ids in the order given. Returns them.
--
-- The last three lists, which only pushes use, may be NULL instead of lists of nulls.
INSERT INTO waybill.event_log
       (namespace_id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code,
        execution_time_ms, error_message, reason, next_retry_at, error_kind, response_excerpt,
        subscription_version, created_at)
SELECT :namespace_id, t.event_id, nullif(t.delivery_id, t.event_id), t.action::waybill.action, t.worker_id, t.lease_id, t.attempt, t.status_code,
       t.execution_time_ms, t.error_message, t.reason, t.next_retry_at, t.error_kind, t.response_excerpt,
       t.subscription_version, coalesce(:now, now())
FROM unnest(:event_ids, :delivery_ids, :actions, :worker_ids, :lease_ids, :attempts, :status_codes,
            :execution_times_ms, :error_messages, :reasons, :next_retry_times, :error_kinds, :response_excerpts,
            :subscription_versions) WITH ORDINALITY
     AS t(event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, execution_time_ms,
          error_message, reason, next_retry_at, error_kind, response_excerpt, subscription_version, ord)
ORDER BY t.ord
RETURNING id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, execution_time_ms,
          error_message, reason, next_retry_at, error_kind, response_excerpt, subscription_version, created_at
