-- :namespace_id int, :event_ids bigint[], :reason text
--
-- Records on the roll-ups of events that their pushes are being cancelled. The rows are locked already. They are
-- compared as in roll_up.sql.
UPDATE waybill.deliveries o SET cancel_requested = true, cancel_reason = coalesce(:reason, o.cancel_reason)
FROM unnest(:event_ids) AS t(event_id)
WHERE (o.namespace_id, o.id) >= (:namespace_id, t.event_id)
  AND (o.namespace_id, o.id) <= (:namespace_id, t.event_id)
  AND o.open_deliveries > 0
