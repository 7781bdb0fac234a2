-- :namespace_ids int[], :max_counts bigint[]
--
-- Returns how many events of each namespace wait for a worker: those that can be claimed, and those that wait for their
-- time or behind their ordering key. Either kind is counted up to the namespace's :max_counts, along an index.
SELECT w.namespace_id, claimable.count + later.count AS waiting
FROM unnest(:namespace_ids, :max_counts) AS w(namespace_id, max_count)
CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT DISTINCT delivery_id FROM waybill.ready
        WHERE namespace_id = w.namespace_id AND queue >= 't:'
        ORDER BY delivery_id
        LIMIT w.max_count
    ) r
) claimable
CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT id FROM waybill.deliveries
        WHERE namespace_id = w.namespace_id AND subscription_id IS NULL
          AND (due_at IS NOT NULL OR order_seq IS NOT NULL)
          AND status = 'PENDING' AND ready_seq IS NULL
        ORDER BY id
        LIMIT w.max_count
    ) d
) later
