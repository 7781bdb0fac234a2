-- :now timestamptz, :namespace_ids int[], :ids bigint[], :poison_after int
--
-- Locks those of :ids whose lease has expired, skipping what other transactions have locked; `overdue.rs` explains
-- the locks. An expired lease ends a delivery only if it was the :poison_after-th in a row: then the rows that are
-- written when a delivery ends are locked, too.
SELECT d.namespace_id, d.id
FROM unnest(:namespace_ids, :ids) AS c(namespace_id, id)
CROSS JOIN LATERAL (
    SELECT id, event_id, subscription_id, namespace_id, ordering_key, order_seq, rescue_count
    FROM waybill.deliveries
    WHERE namespace_id = c.namespace_id AND id = c.id AND lease_expires_at <= coalesce(:now, now())
      AND (ordering_key IS NULL OR pg_try_advisory_xact_lock(
               1463900482, (hashtextextended(namespace_id || ':' || ordering_key, 0) & 1023)::integer))
    FOR UPDATE SKIP LOCKED
) d
LEFT JOIN LATERAL (
    -- The event's own row, if it counts the results of pushes.
    SELECT id FROM waybill.deliveries
    WHERE namespace_id = d.namespace_id AND id = d.event_id AND d.subscription_id IS NOT NULL AND open_deliveries IS NOT NULL
      AND d.rescue_count + 1 >= :poison_after
    OFFSET 0
) roll_up ON true
LEFT JOIN LATERAL (
    SELECT true AS is_locked FROM waybill.deliveries
    WHERE namespace_id = d.namespace_id AND id = roll_up.id FOR UPDATE SKIP LOCKED
) roll_up_lock ON true
LEFT JOIN LATERAL (
    -- The next delivery of the ordering key.
    SELECT id, status = 'PENDING' AND ready_seq IS NULL AND due_at IS NULL AS waits_for_key
    FROM waybill.deliveries
    WHERE namespace_id = d.namespace_id AND ordering_key = d.ordering_key
      AND coalesce(subscription_id, 0) = coalesce(d.subscription_id, 0) AND order_seq > d.order_seq
    ORDER BY order_seq
    LIMIT 1
) next ON true
LEFT JOIN LATERAL (
    SELECT true AS is_locked FROM waybill.deliveries
    WHERE namespace_id = d.namespace_id AND id = next.id AND next.waits_for_key FOR UPDATE SKIP LOCKED
) next_lock ON true
WHERE (roll_up.id IS NULL OR roll_up_lock.is_locked) AND (next.waits_for_key IS NOT TRUE OR next_lock.is_locked)
