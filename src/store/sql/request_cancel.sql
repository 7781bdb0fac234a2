-- :event_id bigint, :reason text
--
-- Records on the roll-up of an event that its pushes are being cancelled.
UPDATE waybill.deliveries SET cancel_requested = true, cancel_reason = coalesce(:reason, cancel_reason)
WHERE id = :event_id AND open_deliveries > 0
