-- :namespace_id int, :now timestamptz, :stale_seconds double precision, :count_cap bigint, :max_rows bigint
--
-- Returns the workers that hold events without a sign of life for :stale_seconds, the longest silent first. Looks at
-- :count_cap leases, those that are to be checked first: see read_stats.sql.
WITH watched AS MATERIALIZED (
    SELECT DISTINCT watched.id
    FROM (SELECT delivery_ids FROM waybill.lease_watch
          WHERE (namespace_id, look_at) >= (:namespace_id, '-infinity')
            AND (namespace_id, look_at) <= (:namespace_id, 'infinity')
          ORDER BY namespace_id, look_at, id LIMIT :count_cap) w
    CROSS JOIN LATERAL unnest(w.delivery_ids) AS watched(id)
    LIMIT :count_cap
)
SELECT d.worker_id, count(*) AS holding,
       extract(epoch FROM coalesce(:now, now()) - max(d.updated_at))::float8 AS silent_seconds,
       (array_agg(d.id ORDER BY d.id))[1:3] AS event_ids
FROM watched
CROSS JOIN LATERAL (
    SELECT worker_id, id, updated_at FROM waybill.deliveries
    WHERE namespace_id = :namespace_id AND id = watched.id AND lease_expires_at IS NOT NULL AND subscription_id IS NULL
    OFFSET 0
) d
WHERE d.updated_at <= coalesce(:now, now()) - make_interval(secs => :stale_seconds)
GROUP BY d.worker_id
ORDER BY max(d.updated_at), d.worker_id
LIMIT :max_rows
