-- :event_id bigint, :reason text
--
-- Marks the own row of an event whose pushes are being cancelled.
UPDATE waybill.deliveries SET cancel_requested = true, cancel_reason = coalesce(:reason, cancel_reason)
WHERE id = :event_id AND open_deliveries > 0
