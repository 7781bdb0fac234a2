-- :namespace_id int, :event_ids bigint[]
--
-- Locks the roll-ups of events that are only pushed, in the order of their ids, and returns their state.
SELECT id, status, cancel_requested, coalesce(failed_deliveries, 0) AS failed_deliveries
FROM waybill.deliveries WHERE namespace_id = :namespace_id AND id = ANY(:event_ids) ORDER BY id FOR UPDATE
