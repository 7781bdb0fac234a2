-- :above bigint, :up_to bigint, :since timestamptz, :max_bytes bigint
--
-- Returns the entries of all namespaces with ids above :above, up to :up_to, in the order of ids. Error messages may be
-- long: the entries behind the first :max_bytes of them are left out. Excerpts of responses are left out, too.
--
-- The block range index finds them, so bitmap scans must be on. Partitions that end before :since are not read, nor
-- those of the last day if the clock was set back: entries from before that are later than now.
SELECT namespace_id, id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, execution_time_ms,
       error_message, reason, next_retry_at, error_kind, NULL::text AS response_excerpt, subscription_version, actor,
       lease_seconds, created_at
FROM (
    SELECT namespace_id, id, event_id, delivery_id, action, worker_id, lease_id, attempt, status_code,
           execution_time_ms, error_message, reason, next_retry_at, error_kind, subscription_version, actor,
           lease_seconds, created_at,
           sum(octet_length(error_message)) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
               AS bytes_before
    FROM waybill.event_log
    WHERE id > :above AND id <= :up_to AND created_at >= least(coalesce(:since, '-infinity'), now() - interval '1 day')
) entries
WHERE coalesce(bytes_before, 0) < :max_bytes
ORDER BY id
