-- :namespace_id int, :event_ids bigint[]
--
-- Locks the roll-ups of events that are only pushed, in the order of their ids, and returns their state.
SELECT d.id, d.status, d.cancel_requested, coalesce(d.failed_deliveries, 0) AS failed_deliveries
FROM (SELECT DISTINCT id FROM unnest(:event_ids) AS id ORDER BY id) wanted
CROSS JOIN LATERAL (
    SELECT * FROM waybill.deliveries WHERE namespace_id = :namespace_id AND id = wanted.id FOR UPDATE
) d
