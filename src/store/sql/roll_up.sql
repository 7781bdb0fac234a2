-- Counts on the own rows of events that are only pushed what changed for their deliveries: how
-- many fewer or more are open, how many were given up. The counts are the locked row's, so
-- that two deliveries which end at the same moment are both counted. What was called off and comes
-- back to life is not called off any more. Events come in the order of their ids, and are locked
-- in that order: `= ANY (ARRAY[…])` is an equality that the planner does not turn around.
UPDATE waybill.deliveries o
SET open_deliveries = o.open_deliveries + t.open,
    failed_deliveries = o.failed_deliveries + t.failed,
    cancel_requested = o.cancel_requested AND (o.open_deliveries > 0 OR t.open <= 0),
    cancel_reason = CASE WHEN o.open_deliveries > 0 OR t.open <= 0 THEN o.cancel_reason END,
    status = CASE WHEN o.open_deliveries + t.open > 0 THEN 'PENDING'
                  WHEN o.failed_deliveries + t.failed > 0 THEN 'FAILED'
                  WHEN o.cancel_requested THEN 'CANCELLED'
                  ELSE 'COMPLETED' END,
    updated_at = coalesce($1, now())
FROM unnest($2, $3, $4) AS t(event_id, open, failed)
WHERE o.id = ANY (ARRAY[t.event_id]) AND o.open_deliveries IS NOT NULL
