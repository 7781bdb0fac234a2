-- A page of tags that have work waiting or workers asking. The distinct queues of `ready`
-- are found by leaping from one to the next (PostgreSQL has no loose index scan of its own),
-- and so are the priorities within a queue, of each of which the first is the oldest.
WITH RECURSIVE queues AS (
    (SELECT queue FROM waybill.ready
     WHERE namespace_id = $1 AND queue > ('t:' || $3) COLLATE "C" AND queue < 't;' COLLATE "C"
     ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT r.queue FROM waybill.ready r
            WHERE r.namespace_id = $1 AND r.queue > q.queue AND r.queue < 't;' COLLATE "C"
            ORDER BY r.queue LIMIT 1)
    FROM queues q WHERE q.queue IS NOT NULL
),
waiting AS (
    SELECT substr(queue, 3) AS tag, queue FROM queues WHERE queue IS NOT NULL LIMIT $4
),
asked AS (
    SELECT tag COLLATE "C" AS tag, count(*) AS workers
    FROM waybill.workers w CROSS JOIN LATERAL unnest(w.tags) AS tag
    WHERE w.namespace_id = $1 AND w.last_seen_at > coalesce($2, now()) - interval '90 seconds'
    GROUP BY 1
),
page AS (
    SELECT coalesce(w.tag, a.tag) AS tag, w.queue, coalesce(a.workers, 0) AS workers
    FROM waiting w FULL JOIN asked a ON a.tag = w.tag
    WHERE coalesce(w.tag, a.tag) > $3 COLLATE "C"
    ORDER BY 1 LIMIT $4
)
SELECT page.tag, counted.waiting, oldest.at AS oldest_at,
       extract(epoch FROM coalesce($2, now()) - oldest.at)::float8 AS oldest_seconds,
       page.workers
FROM page
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting
    FROM (SELECT 1 FROM waybill.ready r WHERE r.namespace_id = $1 AND r.queue = page.queue LIMIT $5 + 1) capped
) counted
CROSS JOIN LATERAL (
    WITH RECURSIVE ranks AS (
        (SELECT rank, seq, delivery_id FROM waybill.ready
         WHERE namespace_id = $1 AND queue = page.queue ORDER BY rank, seq LIMIT 1)
        UNION ALL
        SELECT n.rank, n.seq, n.delivery_id FROM ranks
        CROSS JOIN LATERAL (
            SELECT r.rank, r.seq, r.delivery_id FROM waybill.ready r
            WHERE r.namespace_id = $1 AND r.queue = page.queue AND r.rank > ranks.rank
            ORDER BY r.rank, r.seq LIMIT 1) n
    )
    SELECT min(d.updated_at) AS at FROM ranks JOIN waybill.deliveries d ON d.id = ranks.delivery_id
) oldest
ORDER BY page.tag
