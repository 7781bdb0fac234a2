-- Takes up to $2 rows off the list of leases to look at, those whose time came $5 seconds ago,
-- and sees what became of the deliveries on them. What is settled falls out. What is held goes
-- back on the list, for when its lease ends, or for a few seconds from now if that is sooner.
-- What is held under a lease that has run out is the answer: up to $4 ids, the longest overdue
-- first; more than that go back on the list for now. (Not for when their leases ended: servers do
-- not look at moments again that they have passed.) Whoever wants only pushes ($6) has
-- everything else put back for later.
--
-- The look begins at $3; the answer also says where the first row stood, if that was in the past,
-- else the next moment, so that the next look may begin there. No later: another server may claim
-- under a lease that ends before all that is on the list now.
WITH due AS MATERIALIZED (
    SELECT ctid AS place, delivery_ids
    FROM waybill.lease_watch
    WHERE look_at >= coalesce($3, '-infinity') AND look_at <= coalesce($1, now()) - make_interval(secs => $5)
    ORDER BY look_at, id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
),
taken AS (
    DELETE FROM waybill.lease_watch w USING due WHERE w.ctid = due.place
),
held AS MATERIALIZED (
    SELECT id, lease_expires_at,
           is_wanted AND lease_expires_at <= coalesce($1, now()) AS has_expired, is_wanted,
           row_number() OVER (ORDER BY lease_expires_at, id) AS place
    FROM (
        SELECT DISTINCT d.id, d.lease_expires_at, NOT $6 OR d.subscription_id IS NOT NULL AS is_wanted
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
    SELECT CASE WHEN has_expired THEN coalesce($1, now())
                ELSE least(CASE WHEN is_wanted THEN lease_expires_at END, coalesce($1, now()) + interval '10 seconds')
           END AS look_at,
           array_agg(id)
    FROM held
    WHERE NOT has_expired OR place > $4
    GROUP BY 1
)
SELECT least((SELECT look_at FROM waybill.lease_watch
              WHERE look_at >= coalesce($3, '-infinity') ORDER BY look_at, id LIMIT 1),
             coalesce($1, now()) + interval '1 microsecond') AS head,
       (SELECT count(*) FROM due) AS taken,
       (SELECT coalesce(array_agg(id ORDER BY place), '{}') FROM held WHERE has_expired AND place <= $4) AS expired
