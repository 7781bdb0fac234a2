-- :namespace_id int, :now timestamptz, :tag text, :count_cap bigint
--
-- Returns the state of one tag, as list_tags.sql does for many.
SELECT :tag AS tag, counted.waiting, oldest.at AS oldest_at,
       extract(epoch FROM coalesce(:now, now()) - oldest.at)::float8 AS oldest_seconds,
       (SELECT count(*)
        FROM (SELECT tags, last_seen_at FROM waybill.workers WHERE namespace_id = :namespace_id OFFSET 0) w
        WHERE w.last_seen_at > coalesce(:now, now()) - interval '90 seconds' AND :tag = ANY (w.tags)) AS workers
FROM (
    SELECT count(*) AS waiting
    FROM (
        SELECT 1 FROM waybill.ready
        WHERE namespace_id = :namespace_id AND queue = 't:' || :tag
        LIMIT :count_cap + 1
    ) capped
) counted
CROSS JOIN LATERAL (
    WITH RECURSIVE ranks AS (
        (SELECT rank, seq, delivery_id FROM waybill.ready
         WHERE namespace_id = :namespace_id AND queue = 't:' || :tag ORDER BY rank, seq LIMIT 1)
        UNION ALL
        SELECT n.rank, n.seq, n.delivery_id FROM ranks
        CROSS JOIN LATERAL (
            SELECT r.rank, r.seq, r.delivery_id FROM waybill.ready r
            WHERE r.namespace_id = :namespace_id AND r.queue = 't:' || :tag AND r.rank > ranks.rank
            ORDER BY r.rank, r.seq LIMIT 1) n
    )
    SELECT min(d.updated_at) AS at FROM ranks CROSS JOIN LATERAL (
        SELECT updated_at FROM waybill.deliveries
        WHERE namespace_id = :namespace_id AND id = ranks.delivery_id OFFSET 0
    ) d
) oldest
