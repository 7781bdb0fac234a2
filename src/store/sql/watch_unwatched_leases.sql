-- :namespace_id int, :now timestamptz, :after_id bigint, :max_rows bigint, :overdue_seconds double precision
--
-- Reads the :max_rows deliveries behind :after_id, and puts those on the list of leases whose lease expired
-- :overdue_seconds ago and that are missing on it. Returns them. There should be none: every transaction that
-- grants or extends a lease keeps it on the list, so every snapshot has all leases on it.
--
-- The list is read only if some lease expired that long ago. As long as expired leases are reset in time,
-- that never happens.
WITH step AS MATERIALIZED (
    SELECT id, lease_expires_at FROM waybill.deliveries
    WHERE namespace_id = :namespace_id AND id > :after_id ORDER BY id LIMIT :max_rows
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
    INSERT INTO waybill.lease_watch (look_at, namespace_id, delivery_ids)
    SELECT coalesce(:now, now()), :namespace_id, array_agg(id) FROM unwatched HAVING count(*) > 0
)
SELECT CASE WHEN (SELECT count(*) FROM step) = :max_rows THEN (SELECT max(id) FROM step) END AS last_id,
       (SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM unwatched) AS unwatched,
       coalesce(:now, now()) AS look_at
