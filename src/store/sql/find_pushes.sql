-- :namespace_id int, :ids bigint[]
--
-- Returns pushes, ordered by id. An event's own delivery is not a push.
SELECT d.id, d.event_id, d.subscription_id, d.status, d.retry_count, d.max_retries, d.due_at, d.lease_expires_at,
       d.cancel_requested, d.cancel_reason, d.ordering_key, d.last_error, d.replay_of, d.updated_at, e.created_at,
       d.ordering_key IS DISTINCT FROM e.ordering_key AS has_payload_key
FROM unnest(:ids) AS wanted(id)
CROSS JOIN LATERAL (
    SELECT * FROM waybill.deliveries WHERE namespace_id = :namespace_id AND id = wanted.id OFFSET 0
) d
CROSS JOIN LATERAL (
    SELECT created_at, ordering_key FROM waybill.events WHERE namespace_id = d.namespace_id AND id = d.event_id OFFSET 0
) e
WHERE d.subscription_id IS NOT NULL
ORDER BY d.id
