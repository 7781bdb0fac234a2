-- :now timestamptz, :tags_per_namespace bigint, :max_queues bigint, :count_cap bigint, :worker_cap bigint
--
-- Returns the tags of all namespaces under which events wait, with how many, since when, and how many workers have asked
-- for them lately; the deepest first. At most :tags_per_namespace tags of a namespace are searched, and :max_queues + 1 in
-- total. Events are counted up to :count_cap. If more than :worker_cap workers have called, none are counted.
--
-- As in list_tags.sql, recursive queries replace a skip scan.
WITH active AS MATERIALIZED (
    SELECT namespace_id, tags FROM waybill.workers
    WHERE last_seen_at > coalesce(:now, now()) - interval '90 seconds'
    ORDER BY last_seen_at DESC LIMIT :worker_cap + 1
),
requested AS MATERIALIZED (
    SELECT a.namespace_id, t.tag COLLATE "C" AS tag, count(*) AS workers
    FROM active a CROSS JOIN LATERAL unnest(a.tags) AS t(tag)
    GROUP BY 1, 2
),
queues AS MATERIALIZED (
    SELECT n.id AS namespace_id, n.name AS namespace, q.queue
    FROM waybill.namespaces n
    CROSS JOIN LATERAL (
        WITH RECURSIVE found AS (
            (SELECT r.queue FROM waybill.ready r
             WHERE r.namespace_id = n.id AND r.queue > 't:' COLLATE "C" AND r.queue < 't;' COLLATE "C"
             ORDER BY r.queue LIMIT 1)
            UNION ALL
            SELECT (SELECT r.queue FROM waybill.ready r
                    WHERE r.namespace_id = n.id AND r.queue > f.queue AND r.queue < 't;' COLLATE "C"
                    ORDER BY r.queue LIMIT 1)
            FROM found f WHERE f.queue IS NOT NULL
        )
        SELECT queue FROM found WHERE queue IS NOT NULL LIMIT :tags_per_namespace
    ) q
    LIMIT :max_queues + 1
)
SELECT q.namespace_id, q.namespace, substr(q.queue, 3) AS tag, counted.waiting,
       greatest(coalesce(extract(epoch FROM coalesce(:now, now()) - oldest.at), 0), 0)::float8 AS oldest_seconds,
       CASE WHEN (SELECT count(*) FROM active) <= :worker_cap THEN coalesce(
           (SELECT r.workers FROM requested r WHERE r.namespace_id = q.namespace_id AND r.tag = substr(q.queue, 3)), 0)
       END AS workers
FROM queues q
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting
    FROM (
        SELECT 1 FROM waybill.ready r
        WHERE r.namespace_id = q.namespace_id AND r.queue = q.queue
        LIMIT :count_cap
    ) capped
) counted
CROSS JOIN LATERAL (
    WITH RECURSIVE ranks AS (
        (SELECT rank, seq, delivery_id FROM waybill.ready
         WHERE namespace_id = q.namespace_id AND queue = q.queue ORDER BY rank, seq LIMIT 1)
        UNION ALL
        SELECT n.rank, n.seq, n.delivery_id FROM ranks
        CROSS JOIN LATERAL (
            SELECT r.rank, r.seq, r.delivery_id FROM waybill.ready r
            WHERE r.namespace_id = q.namespace_id AND r.queue = q.queue AND r.rank > ranks.rank
            ORDER BY r.rank, r.seq LIMIT 1) n
    )
    SELECT min(d.updated_at) AS at FROM ranks CROSS JOIN LATERAL (
        SELECT updated_at FROM waybill.deliveries
        WHERE namespace_id = q.namespace_id AND id = ranks.delivery_id OFFSET 0
    ) d
) oldest
ORDER BY counted.waiting DESC, q.namespace_id, q.queue
