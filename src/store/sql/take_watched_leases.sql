-- :now timestamptz, :max_rows bigint, :from_time timestamptz, :max_expired bigint,
-- :overdue_seconds double precision, :only_pushes bool
--
-- Takes up to :max_rows rows off the list of leases whose time came at least :overdue_seconds ago, beginning
-- at :from_time, and looks at their deliveries:
--
-- - Settled: dropped.
-- - Held: put back, for when the lease ends, but for ten seconds from now at most.
-- - Held, and the lease has run out: returned in `expired`, up to :max_expired ids, the longest overdue
--   first. The rest is put back for now, and not for when the lease ended, since servers do not look again
--   at times that they have passed.
--
-- With :only_pushes, all that is not a push is put back for later.
--
-- `head` is where the next look may begin: at the first row of the list, but no later than the next
-- moment, since another server may add a lease that ends before all others on the list.
WITH due AS MATERIALIZED (
    SELECT ctid AS place, delivery_ids
    FROM waybill.lease_watch
    WHERE look_at >= coalesce(:from_time, '-infinity')
      AND look_at <= coalesce(:now, now()) - make_interval(secs => :overdue_seconds)
    ORDER BY look_at, id
    LIMIT :max_rows
    FOR UPDATE SKIP LOCKED
),
taken AS (
    DELETE FROM waybill.lease_watch w USING due WHERE w.ctid = due.place
),
held AS MATERIALIZED (
    SELECT id, lease_expires_at,
           is_wanted AND lease_expires_at <= coalesce(:now, now()) AS has_expired, is_wanted,
           row_number() OVER (ORDER BY lease_expires_at, id) AS place
    FROM (
        SELECT DISTINCT d.id, d.lease_expires_at, NOT :only_pushes OR d.subscription_id IS NOT NULL AS is_wanted
        FROM due
        CROSS JOIN LATERAL unnest(due.delivery_ids) AS watched(id)
        CROSS JOIN LATERAL (
            SELECT id, lease_expires_at, subscription_id
            FROM waybill.deliveries
            WHERE id = watched.id AND lease_expires_at IS NOT NULL
            OFFSET 0
        ) d
    ) distinct_held
),
put_back AS (
    INSERT INTO waybill.lease_watch (look_at, delivery_ids)
    SELECT CASE WHEN has_expired THEN coalesce(:now, now())
                ELSE least(CASE WHEN is_wanted THEN lease_expires_at END, coalesce(:now, now()) + interval '10 seconds')
           END AS look_at,
           array_agg(id)
    FROM held
    WHERE NOT has_expired OR place > :max_expired
    GROUP BY 1
)
SELECT least((SELECT look_at FROM waybill.lease_watch
              WHERE look_at >= coalesce(:from_time, '-infinity') ORDER BY look_at, id LIMIT 1),
             coalesce(:now, now()) + interval '1 microsecond') AS head,
       (SELECT count(*) FROM due) AS taken,
       (SELECT coalesce(array_agg(id ORDER BY place), '{}')
        FROM held WHERE has_expired AND place <= :max_expired) AS expired
