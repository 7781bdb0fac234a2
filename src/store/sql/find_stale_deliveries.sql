-- Deliveries of the pull queue whose lease has run out, or whose worker has given no sign of life
-- for $2 seconds (if that is given); the first to lose its lease first.
SELECT id, worker_id
FROM (
    SELECT DISTINCT d.id, d.worker_id, d.lease_expires_at
    FROM waybill.lease_watch w
    CROSS JOIN LATERAL unnest(w.delivery_ids) AS watched(id)
    CROSS JOIN LATERAL (
        SELECT id, worker_id, lease_expires_at
        FROM waybill.deliveries
        WHERE id = watched.id AND lease_expires_at IS NOT NULL
          AND subscription_id IS NULL AND namespace_id = $1
          AND (lease_expires_at <= coalesce($3, now())
               OR updated_at <= coalesce($3, now()) - make_interval(secs => $2))
        OFFSET 0
    ) d
) stale
ORDER BY lease_expires_at, id
LIMIT $4
