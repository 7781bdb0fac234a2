-- :now timestamptz, :after_id bigint, :max_rows bigint, :overdue_seconds double precision
--
-- Looks at the :max_rows deliveries after :after_id, and puts those on the list of leases that are not on it
-- although their lease ran out :overdue_seconds ago. Returns them; there should be none: whoever gives or
-- keeps a lease keeps it on the list in the same transaction, so every snapshot has all leases on it.
--
-- The list is read only if some lease ran out so long ago. Where expired leases are reset, that never
-- happens.
WITH step AS MATERIALIZED (
    SELECT id, lease_expires_at FROM waybill.deliveries WHERE id > :after_id ORDER BY id LIMIT :max_rows
),
suspects AS MATERIALIZED (
    SELECT id FROM step WHERE lease_expires_at <= coalesce(:now, now()) - make_interval(secs => :overdue_seconds)
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
    SELECT coalesce(:now, now()), array_agg(id) FROM unwatched HAVING count(*) > 0
)
SELECT CASE WHEN (SELECT count(*) FROM step) = :max_rows THEN (SELECT max(id) FROM step) END AS last_id,
       (SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM unwatched) AS unwatched,
       coalesce(:now, now()) AS look_at
