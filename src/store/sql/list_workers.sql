-- A page of workers with what each holds. A worker that holds something is listed even if
-- its sighting has not been written down yet.
WITH held AS MATERIALIZED (
    SELECT DISTINCT d.worker_id, d.id, d.updated_at
    FROM waybill.lease_watch w
    CROSS JOIN LATERAL unnest(w.delivery_ids) AS watched(id)
    CROSS JOIN LATERAL (
        SELECT worker_id, id, updated_at
        FROM waybill.deliveries
        WHERE id = watched.id AND lease_expires_at IS NOT NULL AND subscription_id IS NULL AND namespace_id = $1
        OFFSET 0
    ) d
),
holders AS (
    SELECT worker_id,
           count(*) AS holding,
           count(*) FILTER (WHERE updated_at <= coalesce($2, now()) - make_interval(secs => $3)) AS stale,
           min(updated_at) AS first_touch,
           max(updated_at) AS last_touch,
           (array_agg(id ORDER BY id))[1:10] AS event_ids
    FROM held GROUP BY worker_id
)
SELECT coalesce(w.worker_id, h.worker_id) AS worker_id,
       coalesce(w.tags, '{}') AS tags,
       coalesce(w.first_seen_at, h.first_touch) AS first_seen_at,
       greatest(w.last_seen_at, h.last_touch) AS last_seen_at,
       coalesce(h.holding, 0) AS holding,
       coalesce(h.stale, 0) AS stale,
       coalesce(h.event_ids, '{}') AS event_ids
FROM (SELECT * FROM waybill.workers WHERE namespace_id = $1) w
FULL JOIN holders h ON h.worker_id = w.worker_id
WHERE coalesce(w.worker_id, h.worker_id) > $4
ORDER BY 1
LIMIT $5
