-- :namespace_id int, :event_ids bigint[], :reason text
--
-- Records on the roll-ups of events that their pushes are being cancelled. The rows are locked already.
UPDATE waybill.deliveries SET cancel_requested = true, cancel_reason = coalesce(:reason, cancel_reason)
WHERE namespace_id = :namespace_id AND id = ANY(:event_ids) AND open_deliveries > 0
