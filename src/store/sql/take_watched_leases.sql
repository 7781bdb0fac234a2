-- :now timestamptz, :max_rows bigint, :from_time timestamptz, :max_expired bigint,
-- :overdue_seconds double precision, :only_pushes bool
--
-- Removes up to :max_rows rows from the list of leases whose look_at passed at least :overdue_seconds ago,
-- beginning at :from_time, and checks their deliveries:
--
-- - Settled: dropped from the list.
-- - Held: put back for the end of the lease, but at most 10 seconds from now.
-- - Held with an expired lease: returned in `namespace_ids` and `ids`, up to :max_expired of them, the longest overdue first. The
--   others are put back with the current time, and not with the end of the lease, since servers do not scan
--   times again that are before their low-water mark.
--
-- With :only_pushes, all deliveries that are not pushes are put back for later.
--
-- `head` is the low-water mark for the next scan: the first row of the list, but at most 1 microsecond after
-- :now, since another server may add a lease that ends before all others on the list.
WITH due AS MATERIALIZED (
    SELECT ctid AS row_ctid, namespace_id, delivery_ids
    FROM waybill.lease_watch
    WHERE look_at >= coalesce(:from_time, '-infinity')
      AND look_at <= coalesce(:now, now()) - make_interval(secs => :overdue_seconds)
    ORDER BY look_at, id
    LIMIT :max_rows
    FOR UPDATE SKIP LOCKED
),
removed AS (
    DELETE FROM waybill.lease_watch w USING due WHERE w.ctid = due.row_ctid
),
held AS MATERIALIZED (
    SELECT namespace_id, id, lease_expires_at,
           is_wanted AND lease_expires_at <= coalesce(:now, now()) AS has_expired, is_wanted,
           row_number() OVER (ORDER BY lease_expires_at, namespace_id, id) AS ord
    FROM (
        SELECT DISTINCT d.namespace_id, d.id, d.lease_expires_at, NOT :only_pushes OR d.subscription_id IS NOT NULL AS is_wanted
        FROM due
        CROSS JOIN LATERAL unnest(due.delivery_ids) AS watched(id)
        CROSS JOIN LATERAL (
            SELECT namespace_id, id, lease_expires_at, subscription_id
            FROM waybill.deliveries
            WHERE namespace_id = due.namespace_id AND id = watched.id AND lease_expires_at IS NOT NULL
            OFFSET 0
        ) d
    ) distinct_held
),
put_back AS (
    INSERT INTO waybill.lease_watch (look_at, namespace_id, delivery_ids)
    SELECT CASE WHEN has_expired THEN coalesce(:now, now())
                ELSE least(CASE WHEN is_wanted THEN lease_expires_at END, coalesce(:now, now()) + interval '10 seconds')
           END AS look_at,
           namespace_id, array_agg(id)
    FROM held
    WHERE NOT has_expired OR ord > :max_expired
    GROUP BY 1, namespace_id
)
SELECT least((SELECT look_at FROM waybill.lease_watch
              WHERE look_at >= coalesce(:from_time, '-infinity') ORDER BY look_at, id LIMIT 1),
             coalesce(:now, now()) + interval '1 microsecond') AS head,
       (SELECT count(*) FROM due) AS taken,
       (SELECT coalesce(array_agg(namespace_id ORDER BY ord), '{}')
        FROM held WHERE has_expired AND ord <= :max_expired) AS namespace_ids,
       (SELECT coalesce(array_agg(id ORDER BY ord), '{}')
        FROM held WHERE has_expired AND ord <= :max_expired) AS ids
