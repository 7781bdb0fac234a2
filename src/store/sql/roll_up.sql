-- Counts on the own rows of events that are only pushed what changed for their deliveries: how
-- many fewer or more are open, how many were given up. The counts are the locked row's, so
-- that two deliveries which end at the same moment are both counted.
UPDATE waybill.deliveries o
SET open_deliveries = o.open_deliveries + t.open_change,
    failed_deliveries = o.failed_deliveries + t.failed_change,
    cancel_requested = o.cancel_requested AND o.open_deliveries > 0,
    status = CASE WHEN o.open_deliveries + t.open_change > 0 THEN 'PENDING'
                  WHEN o.failed_deliveries + t.failed_change > 0 THEN 'FAILED'
                  WHEN o.cancel_requested THEN 'CANCELLED'
                  ELSE 'COMPLETED' END,
    updated_at = coalesce($1, now())
FROM (SELECT * FROM unnest($2, $3, $4) AS u(event_id, open_change, failed_change) ORDER BY event_id) t
WHERE o.id = t.event_id AND o.open_deliveries IS NOT NULL
