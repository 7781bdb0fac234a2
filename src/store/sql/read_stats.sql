-- :namespace_id int, :now timestamptz, :stale_seconds double precision, :waiting_cap bigint, :count_cap bigint
--
-- Returns the present state of a namespace, in numbers. Events that can be claimed are counted up to :waiting_cap + 1, and
-- everything else up to :count_cap + 1, along indexes. Where rows must be looked at, as many are, and `…_read` says how
-- many.
--
-- Held deliveries are found through the list of leases, those that are to be checked first first: claims that were
-- settled in the last seconds are still on it. The namespace is a range, and part of the order: the list of all namespaces
-- must not be read in the order of time.
WITH watched AS MATERIALIZED (
    SELECT watched.id
    FROM (SELECT delivery_ids FROM waybill.lease_watch
          WHERE (namespace_id, look_at) >= (:namespace_id, '-infinity')
            AND (namespace_id, look_at) <= (:namespace_id, 'infinity')
          ORDER BY namespace_id, look_at, id LIMIT :count_cap + 1) w
    CROSS JOIN LATERAL unnest(w.delivery_ids) AS watched(id)
    LIMIT :count_cap + 1
),
held AS MATERIALIZED (
    SELECT d.worker_id, d.updated_at
    FROM (SELECT DISTINCT id FROM watched) ids
    CROSS JOIN LATERAL (
        SELECT worker_id, updated_at FROM waybill.deliveries
        WHERE namespace_id = :namespace_id AND id = ids.id AND lease_expires_at IS NOT NULL AND subscription_id IS NULL
        OFFSET 0
    ) d
)
SELECT coalesce(:now, now()) AS at,
       claimable.waiting, oldest.id AS oldest_id, oldest.created_at AS oldest_at,
       extract(epoch FROM coalesce(:now, now()) - oldest.created_at)::float8 AS oldest_seconds,
       later.delayed, later.retrying, later.blocked, later.rows AS later_read,
       running.running, running.rows AS running_read, running.stale_workers,
       (SELECT count(*) FROM (SELECT last_seen_at FROM waybill.workers WHERE namespace_id = :namespace_id OFFSET 0) w
        WHERE w.last_seen_at > coalesce(:now, now()) - interval '90 seconds') AS workers,
       (SELECT count(*)
        FROM (SELECT 1 FROM waybill.deliveries
              WHERE namespace_id = :namespace_id AND listed_status = 'FAILED' AND subscription_id IS NULL
              LIMIT :count_cap + 1) f) AS failed,
       (SELECT count(*)
        FROM (SELECT 1 FROM waybill.ready
              WHERE namespace_id = :namespace_id AND queue >= 's:' COLLATE "C" AND queue < 's;' COLLATE "C"
              LIMIT :count_cap + 1) r) AS pushes_ready,
       pushes.later AS pushes_later, pushes.rows AS pushes_read,
       (SELECT count(*)
        FROM (SELECT 1 FROM waybill.endpoints
              WHERE namespace_id = :namespace_id AND opened_at IS NOT NULL
              LIMIT :count_cap + 1) e) AS breakers_open,
       (SELECT count(*)
        FROM (SELECT 1 FROM waybill.dead_letters
              WHERE namespace_id = :namespace_id AND replayed_at IS NULL
              LIMIT :count_cap + 1) l) AS dead_letters
FROM (
    SELECT count(*) AS waiting FROM (
        SELECT DISTINCT delivery_id FROM waybill.ready
        WHERE namespace_id = :namespace_id AND queue >= 't:'
        ORDER BY delivery_id
        LIMIT :waiting_cap + 1
    ) r
) claimable
-- Ids are in the order of time, so the event with the lowest one was published first.
LEFT JOIN LATERAL (
    SELECT e.id, e.created_at
    FROM (SELECT delivery_id FROM waybill.ready
          WHERE namespace_id = :namespace_id AND queue >= 't:' ORDER BY delivery_id LIMIT 1) first
    CROSS JOIN LATERAL (
        SELECT id, created_at FROM waybill.events WHERE namespace_id = :namespace_id AND id = first.delivery_id OFFSET 0
    ) e
) oldest ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS rows,
           count(*) FILTER (WHERE is_waiting AND due_at IS NOT NULL) AS delayed,
           count(*) FILTER (WHERE is_waiting AND due_at IS NOT NULL AND retry_count > 0) AS retrying,
           count(*) FILTER (WHERE is_waiting AND due_at IS NULL) AS blocked
    FROM (
        SELECT due_at, retry_count, status = 'PENDING' AND ready_seq IS NULL AS is_waiting
        FROM waybill.deliveries
        WHERE namespace_id = :namespace_id AND subscription_id IS NULL
          AND (due_at IS NOT NULL OR order_seq IS NOT NULL)
        ORDER BY id
        LIMIT :count_cap + 1
    ) d
) later
CROSS JOIN LATERAL (
    SELECT (SELECT count(*) FROM watched) AS rows,
           count(*) AS running,
           count(DISTINCT worker_id) FILTER (
               WHERE updated_at <= coalesce(:now, now()) - make_interval(secs => :stale_seconds)
           ) AS stale_workers
    FROM held
) running
-- Those of other namespaces are read as well: the index has no namespaces.
CROSS JOIN LATERAL (
    SELECT count(*) AS rows,
           count(*) FILTER (WHERE namespace_id = :namespace_id AND subscription_id IS NOT NULL) AS later
    FROM (SELECT namespace_id, subscription_id FROM waybill.deliveries
          WHERE due_at IS NOT NULL ORDER BY due_at LIMIT :count_cap + 1) d
) pushes
