-- :namespace_id int, :now timestamptz, :stale_seconds double precision,
-- :after text, :descending boolean, :max_rows bigint
--
-- Returns a page of workers, in the order of their names, with the deliveries that each holds. A worker that holds a
-- delivery is included even if it has no row in `workers` yet.
--
-- Held deliveries are found through the list of leases: see read_stats.sql. The list has what was settled in the last
-- seconds, too, and each costs a look-up. So 10,000 are looked at, those that are to be checked first.
WITH watched AS MATERIALIZED (
    SELECT watched.id
    FROM (SELECT delivery_ids FROM waybill.lease_watch
          WHERE (namespace_id, look_at) >= (:namespace_id, '-infinity')
            AND (namespace_id, look_at) <= (:namespace_id, 'infinity')
          ORDER BY namespace_id, look_at, id LIMIT 10000) w
    CROSS JOIN LATERAL unnest(w.delivery_ids) AS watched(id)
    LIMIT 10000
),
held AS MATERIALIZED (
    SELECT d.worker_id, d.id, d.updated_at
    FROM (SELECT DISTINCT id FROM watched) ids
    CROSS JOIN LATERAL (
        SELECT worker_id, id, updated_at
        FROM waybill.deliveries
        WHERE namespace_id = :namespace_id AND id = ids.id AND lease_expires_at IS NOT NULL AND subscription_id IS NULL
        OFFSET 0
    ) d
),
holders AS (
    SELECT worker_id,
           count(*) AS holding,
           count(*) FILTER (WHERE updated_at <= coalesce(:now, now()) - make_interval(secs => :stale_seconds)) AS stale,
           min(updated_at) AS first_change,
           max(updated_at) AS last_change,
           (array_agg(id ORDER BY id))[1:10] AS event_ids
    FROM held GROUP BY worker_id
)
SELECT coalesce(w.worker_id, h.worker_id) AS worker_id,
       coalesce(w.tags, '{}') AS tags,
       coalesce(w.first_seen_at, h.first_change) AS first_seen_at,
       greatest(w.last_seen_at, h.last_change) AS last_seen_at,
       coalesce(h.holding, 0) AS holding,
       coalesce(h.stale, 0) AS stale,
       coalesce(h.event_ids, '{}') AS event_ids
FROM (SELECT * FROM waybill.workers WHERE namespace_id = :namespace_id) w
FULL JOIN holders h ON h.worker_id = w.worker_id
WHERE :after IS NULL
   OR CASE WHEN :descending THEN coalesce(w.worker_id, h.worker_id) < :after
           ELSE coalesce(w.worker_id, h.worker_id) > :after END
ORDER BY CASE WHEN NOT :descending THEN coalesce(w.worker_id, h.worker_id) END, worker_id DESC
LIMIT :max_rows
