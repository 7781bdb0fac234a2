-- :now timestamptz, :count_cap bigint, :max_rows bigint
--
-- Returns the tags, of all namespaces, that have waiting events and that no worker has asked for in the last 90 seconds.
-- Up to :count_cap tags are looked at, and :max_rows of them are returned with the number of their waiting events, up to
-- :count_cap, and the time for which the next one has waited. How one gets from tag to tag is explained in
-- list_tags.sql.
WITH waiting AS MATERIALIZED (
    SELECT n.id AS namespace_id, n.name AS namespace, w.queue
    FROM waybill.namespaces n
    CROSS JOIN LATERAL (
        WITH RECURSIVE queues AS (
            SELECT 't:' COLLATE "C" AS queue
            UNION ALL
            SELECT (SELECT r.queue FROM waybill.ready r
                    WHERE r.namespace_id = n.id AND r.queue > q.queue AND r.queue < 't;' COLLATE "C"
                    ORDER BY r.queue LIMIT 1)
            FROM queues q WHERE q.queue IS NOT NULL
        )
        SELECT queue FROM queues WHERE queue IS NOT NULL OFFSET 1 LIMIT :count_cap
    ) w
    LIMIT :count_cap
),
requested AS MATERIALIZED (
    SELECT DISTINCT w.namespace_id, 't:' || tag COLLATE "C" AS queue
    FROM waybill.workers w
    CROSS JOIN LATERAL unnest(w.tags) AS tag
    WHERE w.last_seen_at > coalesce(:now, now()) - interval '90 seconds'
),
unserved AS MATERIALIZED (
    SELECT namespace_id, namespace, queue FROM waiting w
    WHERE NOT EXISTS (SELECT 1 FROM requested r WHERE r.namespace_id = w.namespace_id AND r.queue = w.queue)
),
shown AS (
    SELECT u.namespace, substr(u.queue, 3) AS tag, counted.waiting, head.seconds
    FROM (SELECT * FROM unserved ORDER BY namespace, queue LIMIT :max_rows) u
    CROSS JOIN LATERAL (
        SELECT count(*) AS waiting
        FROM (SELECT 1 FROM waybill.ready r
              WHERE r.namespace_id = u.namespace_id AND r.queue = u.queue LIMIT :count_cap) capped
    ) counted
    CROSS JOIN LATERAL (
        SELECT extract(epoch FROM coalesce(:now, now()) - d.updated_at)::float8 AS seconds
        FROM (SELECT delivery_id FROM waybill.ready r
              WHERE r.namespace_id = u.namespace_id AND r.queue = u.queue ORDER BY rank, seq LIMIT 1) first
        CROSS JOIN LATERAL (SELECT updated_at FROM waybill.deliveries
                            WHERE namespace_id = u.namespace_id AND id = first.delivery_id OFFSET 0) d
    ) head
)
SELECT json_build_object(
    'unserved', (SELECT count(*) FROM unserved),
    'tags', (SELECT coalesce(json_agg(json_build_object(
                'namespace', namespace, 'tag', tag, 'waiting', waiting, 'seconds', seconds
             ) ORDER BY seconds DESC, namespace, tag), '[]') FROM shown)
)::text AS facts
