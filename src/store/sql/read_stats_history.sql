-- :namespace_id int, :tag text, :since timestamptz, :until timestamptz, :step_seconds bigint, :by_hour boolean
--
-- Returns what all servers have done from :since until :until, summed up by steps of :step_seconds since the epoch, from
-- minutes or from hours. Steps in which nothing was done are left out. An empty :tag means the whole namespace.
SELECT extract(epoch FROM p.at)::bigint / :step_seconds AS point,
       sum(published)::bigint AS published, sum(claimed)::bigint AS claimed, sum(completed)::bigint AS completed,
       sum(failed)::bigint AS failed, sum(retried)::bigint AS retried, sum(released)::bigint AS released,
       sum(reset)::bigint AS reset, sum(expired)::bigint AS expired,
       sum(pushes_succeeded)::bigint AS pushes_succeeded, sum(pushes_failed)::bigint AS pushes_failed,
       sum(dead_lettered)::bigint AS dead_lettered
FROM (
    SELECT minute AS at,
           published, claimed, completed, failed, retried, released, reset, expired, pushes_succeeded, pushes_failed,
           dead_lettered
    FROM waybill.stats_minutes
    WHERE NOT :by_hour AND namespace_id = :namespace_id AND tag = :tag AND minute >= :since AND minute < :until
    UNION ALL
    SELECT hour,
           published, claimed, completed, failed, retried, released, reset, expired, pushes_succeeded, pushes_failed,
           dead_lettered
    FROM waybill.stats_hours
    WHERE :by_hour AND namespace_id = :namespace_id AND tag = :tag AND hour >= :since AND hour < :until
) p
GROUP BY point
