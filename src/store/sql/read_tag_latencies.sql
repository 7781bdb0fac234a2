-- :namespace_id int, :tags text[], :since timestamptz
--
-- Returns how many events of each tag there were in each bucket of latencies, since the hour :since.
SELECT t.tag, l.bucket, sum(l.count)::bigint AS count
FROM unnest(:tags) AS t(tag)
CROSS JOIN LATERAL (
    SELECT latency_buckets, latency_counts FROM waybill.stats_hours
    WHERE namespace_id = :namespace_id AND tag = t.tag COLLATE "C" AND hour >= :since
    OFFSET 0
) h
CROSS JOIN LATERAL unnest(h.latency_buckets, h.latency_counts) AS l(bucket, count)
GROUP BY t.tag, l.bucket
