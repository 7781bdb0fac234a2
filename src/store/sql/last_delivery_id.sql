-- :namespace_id int
--
-- Returns the highest id of all deliveries, or 0. The own delivery of an event has the id of the event.
SELECT coalesce(max(id), 0) AS id FROM waybill.deliveries WHERE namespace_id = :namespace_id
