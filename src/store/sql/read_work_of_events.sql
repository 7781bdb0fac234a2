-- :namespace_id int, :event_ids bigint[], :after_id bigint, :statuses text[], :max_rows bigint
--
-- Returns the deliveries that an operator's action on :event_ids is about: the pushes with one of :statuses and an id
-- above :after_id of an event that is only pushed, and the own delivery of any other event. At most :max_rows, event
-- by event in the order given, the pushes of an event in the order of their ids.
SELECT a.event_id, w.id, o.is_rolled_up
FROM unnest(:event_ids) AS a(event_id)
CROSS JOIN LATERAL (
    SELECT open_deliveries IS NOT NULL AS is_rolled_up FROM waybill.deliveries
    WHERE namespace_id = :namespace_id AND id = a.event_id OFFSET 0
) o
CROSS JOIN LATERAL (
    SELECT a.event_id AS id WHERE NOT o.is_rolled_up
    UNION ALL
    (
        SELECT d.id
        -- `OFFSET 0` is a fence: without it the planner may walk all ids in search of these few.
        FROM (
            SELECT id, status FROM waybill.deliveries
            WHERE namespace_id = :namespace_id AND event_id = a.event_id AND subscription_id IS NOT NULL OFFSET 0
        ) d
        WHERE o.is_rolled_up AND d.id > :after_id AND d.status = ANY(:statuses::waybill.status[])
        ORDER BY d.id
        LIMIT :max_rows
    )
    OFFSET 0
) w
LIMIT :max_rows
