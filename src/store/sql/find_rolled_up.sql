-- :namespace_id int, :event_id bigint
--
-- Returns the pushes of an event that is only pushed. Returns no row for any other event.
SELECT p.ids AS pushes
FROM (SELECT id, open_deliveries FROM waybill.deliveries
      WHERE namespace_id = :namespace_id AND id = :event_id OFFSET 0) o
CROSS JOIN LATERAL (SELECT coalesce(array_agg(id ORDER BY id), '{}') AS ids FROM waybill.deliveries
                    WHERE namespace_id = :namespace_id AND event_id = o.id AND subscription_id IS NOT NULL) p
WHERE o.open_deliveries IS NOT NULL
