-- :namespace_id int, :tag text, :since timestamptz, :until timestamptz, :step_seconds bigint, :by_hour boolean
--
-- Returns how many events there were in each bucket of latencies, as read_stats_history.sql returns what was done.
SELECT extract(epoch FROM p.at)::bigint / :step_seconds AS point, l.bucket, sum(l.count)::bigint AS count
FROM (
    SELECT minute AS at, latency_buckets, latency_counts FROM waybill.stats_minutes
    WHERE NOT :by_hour AND namespace_id = :namespace_id AND tag = :tag AND minute >= :since AND minute < :until
    UNION ALL
    SELECT hour, latency_buckets, latency_counts FROM waybill.stats_hours
    WHERE :by_hour AND namespace_id = :namespace_id AND tag = :tag AND hour >= :since AND hour < :until
) p
CROSS JOIN LATERAL unnest(p.latency_buckets, p.latency_counts) AS l(bucket, count)
GROUP BY point, l.bucket
