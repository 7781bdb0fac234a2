-- :event_ids bigint[], :max_rows bigint
--
-- Returns the deliveries that a retry of :event_ids is about, and whether each can be retried: the pushes of an
-- event that is only pushed, and the own delivery of any other event. At most :max_rows, event by event.
SELECT a.event_id, w.id, w.is_retriable
FROM unnest(:event_ids) AS a(event_id)
CROSS JOIN LATERAL (
    SELECT open_deliveries IS NOT NULL AS is_rolled_up, unhappy_status IS NOT NULL AS is_unhappy
    FROM waybill.deliveries WHERE id = a.event_id OFFSET 0
) o
CROSS JOIN LATERAL (
    SELECT a.event_id AS id, o.is_unhappy AS is_retriable WHERE NOT o.is_rolled_up
    UNION ALL
    SELECT d.id,
           d.unhappy_status IS NOT NULL
           AND EXISTS (SELECT 1 FROM waybill.subscriptions WHERE id = d.subscription_id AND deleted_at IS NULL)
    FROM waybill.deliveries d
    WHERE o.is_rolled_up AND d.event_id = a.event_id AND d.subscription_id IS NOT NULL
    OFFSET 0
) w
LIMIT :max_rows
