-- :namespace_id int, :silent_seconds double precision, :now timestamptz, :max_rows bigint
--
-- Returns deliveries of the pull queues whose lease has expired, or whose worker has given no sign of life
-- for :silent_seconds (unless that is NULL). The lease that ends first comes first.
SELECT id, worker_id
FROM (
    SELECT DISTINCT d.id, d.worker_id, d.lease_expires_at
    FROM waybill.lease_watch w
    CROSS JOIN LATERAL unnest(w.delivery_ids) AS watched(id)
    CROSS JOIN LATERAL (
        SELECT id, worker_id, lease_expires_at
        FROM waybill.deliveries
        WHERE id = watched.id AND lease_expires_at IS NOT NULL
          AND subscription_id IS NULL AND namespace_id = :namespace_id
          AND (lease_expires_at <= coalesce(:now, now())
               OR updated_at <= coalesce(:now, now()) - make_interval(secs => :silent_seconds))
        OFFSET 0
    ) d
) stale
ORDER BY lease_expires_at, id
LIMIT :max_rows
