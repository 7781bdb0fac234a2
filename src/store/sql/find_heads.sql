-- Of each key of each consumer (a subscription, or 0 for the pull queue) the head, if it waits
-- for nothing but its turn.
SELECT head.id
FROM unnest($2, $3) AS k(key, consumer)
CROSS JOIN LATERAL (
    SELECT d.id, d.status, d.ready_seq, d.due_at
    FROM waybill.deliveries d
    WHERE d.namespace_id = $1 AND d.ordering_key = k.key AND coalesce(d.subscription_id, 0) = k.consumer
      AND d.order_seq IS NOT NULL
    ORDER BY d.order_seq
    LIMIT 1
) head
WHERE head.status = 'PENDING' AND head.ready_seq IS NULL AND head.due_at IS NULL
