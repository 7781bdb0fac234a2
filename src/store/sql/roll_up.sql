-- Counts on the own rows of events that are only pushed what changed for their deliveries: how
-- many fewer or more are open, how many were given up. The counts are the locked row's, so
-- that two deliveries which end at the same moment are both counted. What was called off and comes
-- back to life is not called off any more.
UPDATE waybill.deliveries o
SET open_deliveries = o.open_deliveries + ($3)[array_position($2, o.id)],
    failed_deliveries = o.failed_deliveries + ($4)[array_position($2, o.id)],
    cancel_requested = o.cancel_requested AND (o.open_deliveries > 0 OR ($3)[array_position($2, o.id)] <= 0),
    cancel_reason = CASE WHEN o.open_deliveries > 0 OR ($3)[array_position($2, o.id)] <= 0 THEN o.cancel_reason END,
    status = CASE WHEN o.open_deliveries + ($3)[array_position($2, o.id)] > 0 THEN 'PENDING'
                  WHEN o.failed_deliveries + ($4)[array_position($2, o.id)] > 0 THEN 'FAILED'
                  WHEN o.cancel_requested THEN 'CANCELLED'
                  ELSE 'COMPLETED' END,
    updated_at = coalesce($1, now())
WHERE o.id = ANY ($2) AND o.open_deliveries IS NOT NULL
