-- :event_id bigint
--
-- Locks the roll-up of an event that is only pushed, and returns its state.
SELECT status, cancel_requested, coalesce(failed_deliveries, 0) AS failed_deliveries
FROM waybill.deliveries WHERE id = :event_id FOR UPDATE
