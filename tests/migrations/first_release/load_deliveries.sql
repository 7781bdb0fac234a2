-- :namespace_id int, :ids bigint[], :now timestamptz
--
-- Locks deliveries and returns them with what is needed to change them. Rows are locked in the order of
-- their ids, which prevents deadlocks. Each is looked up on its own: for a list of ids, a plan made while the
-- table was empty would read all deliveries of the namespace.
SELECT d.id, d.event_id, d.subscription_id, d.status, d.retry_count, d.rescue_count, d.lease_id, d.worker_id,
       d.lease_expires_at, d.cancel_requested, d.cancel_reason, d.ready_seq, d.due_at, d.expires_at, d.ordering_key,
       d.started_at, d.settled_lease_id, d.settled_action, d.progress, d.result, d.last_error, d.updated_at,
       e.tags, e.backoff, e.payload_bytes, e.expires_at AS event_expires_at, coalesce(:now, now()) AS now,
       d.open_deliveries IS NOT NULL AS is_roll_up, d.order_seq IS NOT NULL AS has_order_seq,
       coalesce(s.blocks_when_failed, false) AS blocks_when_failed,
       -- For a push, the current setting of its subscription applies.
       greatest(d.retry_count, coalesce(s.max_attempts, d.max_retries)) AS max_retries
FROM (SELECT DISTINCT id FROM unnest(:ids) AS id ORDER BY id) wanted
CROSS JOIN LATERAL (
    SELECT * FROM waybill.deliveries WHERE namespace_id = :namespace_id AND id = wanted.id FOR UPDATE
) d
CROSS JOIN LATERAL (
    SELECT string_to_array(tags, ',') AS tags, backoff, expires_at, payload_bytes FROM waybill.events WHERE namespace_id = d.namespace_id AND id = d.event_id OFFSET 0
) e
LEFT JOIN LATERAL (
    SELECT spec ->> 'on_exhausted' = 'block' AS blocks_when_failed, (spec ->> 'max_attempts')::integer AS max_attempts
    FROM waybill.subscriptions WHERE namespace_id = d.namespace_id AND id = d.subscription_id OFFSET 0
) s ON true
