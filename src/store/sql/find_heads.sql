-- :namespace_ids int[], :keys text[], :consumers bigint[]
--
-- Returns the head of each ordering key, if it is pending and neither in `ready` nor waiting for a due time.
-- A consumer is the id of a subscription, or 0 for the pull queue.
SELECT k.namespace_id, head.id
FROM unnest(:namespace_ids, :keys, :consumers) AS k(namespace_id, key, consumer)
CROSS JOIN LATERAL (
    SELECT d.id, d.status, d.ready_seq, d.due_at
    FROM waybill.deliveries d
    WHERE d.namespace_id = k.namespace_id AND d.ordering_key = k.key AND coalesce(d.subscription_id, 0) = k.consumer
      AND d.order_seq IS NOT NULL
    ORDER BY d.order_seq
    LIMIT 1
) head
WHERE head.status = 'PENDING' AND head.ready_seq IS NULL AND head.due_at IS NULL
