-- :now timestamptz, :after_namespace_id int, :after_id bigint, :max_rows bigint, :overdue_seconds double precision
--
-- Reads the :max_rows deliveries behind (:after_namespace_id, :after_id), of all namespaces in the order of their keys,
-- and puts those on the list of leases whose lease expired
-- :overdue_seconds ago and that are missing on it. Returns them. There should be none: every transaction that
-- grants or extends a lease keeps it on the list, so every snapshot has all leases on it.
--
-- The list is read only if some lease expired that long ago. As long as expired leases are reset in time,
-- that never happens.
WITH step AS MATERIALIZED (
    SELECT namespace_id, id, lease_expires_at FROM waybill.deliveries
    WHERE (namespace_id, id) > (:after_namespace_id, :after_id) ORDER BY namespace_id, id LIMIT :max_rows
),
suspects AS MATERIALIZED (
    SELECT namespace_id, id FROM step WHERE lease_expires_at <= coalesce(:now, now()) - make_interval(secs => :overdue_seconds)
),
unwatched AS MATERIALIZED (
    SELECT namespace_id, id FROM suspects
    EXCEPT
    SELECT w.namespace_id, watched.id
    FROM waybill.lease_watch w
    CROSS JOIN LATERAL unnest(w.delivery_ids) AS watched(id)
    WHERE EXISTS (SELECT 1 FROM suspects)
),
put_back AS (
    INSERT INTO waybill.lease_watch (look_at, namespace_id, delivery_ids)
    SELECT coalesce(:now, now()), namespace_id, array_agg(id) FROM unwatched GROUP BY namespace_id
)
SELECT last.namespace_id AS last_namespace_id, last.id AS last_id,
       (SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM unwatched) AS unwatched,
       coalesce(:now, now()) AS look_at
FROM (SELECT) one
LEFT JOIN (
    SELECT namespace_id, id FROM step WHERE (SELECT count(*) FROM step) = :max_rows
    ORDER BY namespace_id DESC, id DESC LIMIT 1
) last ON true
