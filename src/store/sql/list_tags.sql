-- :namespace_id int, :now timestamptz, :after text, :descending boolean, :max_rows bigint, :count_cap bigint
--
-- Returns a page of the tags that have waiting events, or workers that request them, in the order of their
-- names.
--
-- PostgreSQL has no skip scan from one distinct value of an index to the next. Recursive queries replace it:
-- from one queue of `ready` to the next, and within a queue from one priority to the next. The first entry
-- of each priority is its oldest. Workers are read by their namespace (`OFFSET 0`): by the time when they were last seen,
-- those of all namespaces would be. The first row of `queues` is where the page begins, and is no queue of it.
WITH RECURSIVE queues AS (
    SELECT coalesce('t:' || :after, CASE WHEN :descending THEN 't;' ELSE 't:' END) COLLATE "C" AS queue
    UNION ALL
    SELECT CASE
        WHEN :descending THEN
           (SELECT r.queue FROM waybill.ready r
            WHERE r.namespace_id = :namespace_id AND r.queue < q.queue AND r.queue > 't:' COLLATE "C"
            ORDER BY r.queue DESC LIMIT 1)
        ELSE
           (SELECT r.queue FROM waybill.ready r
            WHERE r.namespace_id = :namespace_id AND r.queue > q.queue AND r.queue < 't;' COLLATE "C"
            ORDER BY r.queue LIMIT 1)
        END
    FROM queues q WHERE q.queue IS NOT NULL
),
waiting AS (
    SELECT substr(queue, 3) AS tag, queue FROM queues WHERE queue IS NOT NULL OFFSET 1 LIMIT :max_rows
),
requested AS (
    SELECT tag COLLATE "C" AS tag, count(*) AS workers
    FROM (SELECT tags, last_seen_at FROM waybill.workers WHERE namespace_id = :namespace_id OFFSET 0) w
    CROSS JOIN LATERAL unnest(w.tags) AS tag
    WHERE w.last_seen_at > coalesce(:now, now()) - interval '90 seconds'
    GROUP BY 1
),
page AS (
    SELECT coalesce(w.tag, a.tag) AS tag, w.queue, coalesce(a.workers, 0) AS workers
    FROM waiting w FULL JOIN requested a ON a.tag = w.tag
    WHERE :after IS NULL
       OR CASE WHEN :descending THEN coalesce(w.tag, a.tag) < :after COLLATE "C"
               ELSE coalesce(w.tag, a.tag) > :after COLLATE "C" END
    ORDER BY CASE WHEN NOT :descending THEN coalesce(w.tag, a.tag) END, tag DESC
    LIMIT :max_rows
)
SELECT page.tag, counted.waiting, oldest.at AS oldest_at,
       extract(epoch FROM coalesce(:now, now()) - oldest.at)::float8 AS oldest_seconds,
       page.workers
FROM page
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting
    FROM (
        SELECT 1 FROM waybill.ready r
        WHERE r.namespace_id = :namespace_id AND r.queue = page.queue
        LIMIT :count_cap + 1
    ) capped
) counted
CROSS JOIN LATERAL (
    WITH RECURSIVE ranks AS (
        (SELECT rank, seq, delivery_id FROM waybill.ready
         WHERE namespace_id = :namespace_id AND queue = page.queue ORDER BY rank, seq LIMIT 1)
        UNION ALL
        SELECT n.rank, n.seq, n.delivery_id FROM ranks
        CROSS JOIN LATERAL (
            SELECT r.rank, r.seq, r.delivery_id FROM waybill.ready r
            WHERE r.namespace_id = :namespace_id AND r.queue = page.queue AND r.rank > ranks.rank
            ORDER BY r.rank, r.seq LIMIT 1) n
    )
    SELECT min(d.updated_at) AS at FROM ranks CROSS JOIN LATERAL (
        SELECT updated_at FROM waybill.deliveries
        WHERE namespace_id = :namespace_id AND id = ranks.delivery_id OFFSET 0
    ) d
) oldest
ORDER BY CASE WHEN NOT :descending THEN page.tag END, page.tag DESC
