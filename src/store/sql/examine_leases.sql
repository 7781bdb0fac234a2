-- :now timestamptz, :count_cap bigint, :max_rows bigint, :overdue_seconds double precision, :stale_seconds double precision
--
-- Returns, of the :count_cap leases that are to be checked first, how many expired more than :overdue_seconds ago and
-- nobody has reset, and which workers hold events without a sign of life for :stale_seconds. Pushes are left out: they
-- are reset by the servers that send them.
WITH watched AS MATERIALIZED (
    SELECT w.namespace_id, watched.id
    FROM (SELECT namespace_id, delivery_ids FROM waybill.lease_watch ORDER BY look_at, id LIMIT :count_cap) w
    CROSS JOIN LATERAL unnest(w.delivery_ids) AS watched(id)
    LIMIT :count_cap
),
held AS MATERIALIZED (
    SELECT n.name AS namespace, d.id, d.worker_id,
           extract(epoch FROM coalesce(:now, now()) - d.lease_expires_at)::float8 AS expired_seconds,
           extract(epoch FROM coalesce(:now, now()) - d.updated_at)::float8 AS silent_seconds
    FROM (SELECT DISTINCT namespace_id, id FROM watched) ids
    CROSS JOIN LATERAL (
        SELECT namespace_id, id, worker_id, lease_expires_at, updated_at FROM waybill.deliveries
        WHERE namespace_id = ids.namespace_id AND id = ids.id AND lease_expires_at IS NOT NULL
          AND subscription_id IS NULL
        OFFSET 0
    ) d
    JOIN waybill.namespaces n ON n.id = d.namespace_id
)
SELECT json_build_object(
    'expired', (SELECT count(*) FROM held WHERE expired_seconds > :overdue_seconds),
    'events', (SELECT coalesce(json_agg(json_build_object(
                  'namespace', namespace, 'id', id, 'worker_id', worker_id, 'seconds', expired_seconds
               ) ORDER BY expired_seconds DESC, id), '[]')
               FROM (SELECT * FROM held WHERE expired_seconds > :overdue_seconds
                     ORDER BY expired_seconds DESC, id LIMIT :max_rows) e),
    'stale', (SELECT count(*) FROM (SELECT DISTINCT namespace, worker_id FROM held
                                    WHERE silent_seconds > :stale_seconds) s),
    'workers', (SELECT coalesce(json_agg(json_build_object(
                   'namespace', namespace, 'worker_id', worker_id, 'holding', holding, 'seconds', seconds
                ) ORDER BY seconds DESC, worker_id), '[]')
                FROM (SELECT namespace, worker_id, count(*) AS holding, min(silent_seconds) AS seconds
                      FROM held WHERE silent_seconds > :stale_seconds
                      GROUP BY namespace, worker_id ORDER BY min(silent_seconds) DESC, worker_id LIMIT :max_rows) w)
)::text AS facts
