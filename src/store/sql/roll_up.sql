-- :now timestamptz, :namespace_ids int[], :event_ids bigint[], :open_changes int[], :failed_changes int[]
--
-- Adds to the counts on the roll-ups of events: the number of open pushes, and the number of failed ones. It
-- adds to the locked row, so two pushes that end concurrently are both counted. An event that was cancelled
-- and is retried is no longer cancelled.
--
-- Events are given and locked in the order of their namespaces and ids. The comparison of rows makes the planner look up each by
-- its whole key. With `=`, a plan made while the table was empty might read all deliveries of the namespace.
UPDATE waybill.deliveries o
SET open_deliveries = o.open_deliveries + t.open,
    failed_deliveries = o.failed_deliveries + t.failed,
    cancel_requested = o.cancel_requested AND (o.open_deliveries > 0 OR t.open <= 0),
    cancel_reason = CASE WHEN o.open_deliveries > 0 OR t.open <= 0 THEN o.cancel_reason END,
    status = waybill.roll_up_status(o.open_deliveries + t.open, o.failed_deliveries + t.failed, o.cancel_requested),
    listed_status = waybill.roll_up_status(o.open_deliveries + t.open, o.failed_deliveries + t.failed,
                                           o.cancel_requested),
    updated_at = coalesce(:now, now())
FROM unnest(:namespace_ids, :event_ids, :open_changes, :failed_changes) AS t(namespace_id, event_id, open, failed)
WHERE (o.namespace_id, o.id) >= (t.namespace_id, t.event_id)
  AND (o.namespace_id, o.id) <= (t.namespace_id, t.event_id)
  AND o.open_deliveries IS NOT NULL
