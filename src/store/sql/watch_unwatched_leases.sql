-- One step through `deliveries`, by primary key: looks at the $3 rows behind id $2, and puts those
-- on the list of leases whose lease ran out $4 seconds ago and that are not on it. There should be
-- none. Every transaction that gives a lease or keeps one also keeps it on the list, so that one
-- snapshot of both shows every lease on the list.
--
-- The list is read only if a lease ran out so long ago; where leases are reset by themselves
-- that is never.
WITH step AS MATERIALIZED (
    SELECT id, lease_expires_at FROM waybill.deliveries WHERE id > $2 ORDER BY id LIMIT $3
),
suspects AS MATERIALIZED (
    SELECT id FROM step WHERE lease_expires_at <= coalesce($1, now()) - make_interval(secs => $4)
),
unwatched AS MATERIALIZED (
    SELECT id FROM suspects
    EXCEPT
    SELECT watched.id
    FROM waybill.lease_watch w
    CROSS JOIN LATERAL unnest(w.delivery_ids) AS watched(id)
    WHERE EXISTS (SELECT 1 FROM suspects)
),
put_back AS (
    INSERT INTO waybill.lease_watch (look_at, delivery_ids)
    SELECT coalesce($1, now()), array_agg(id) FROM unwatched HAVING count(*) > 0
)
SELECT CASE WHEN (SELECT count(*) FROM step) = $3 THEN (SELECT max(id) FROM step) END AS last_id,
       (SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM unwatched) AS unwatched,
       coalesce($1, now()) AS look_at
