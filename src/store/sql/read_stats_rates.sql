-- :namespace_id int, :tags text[], :since timestamptz
--
-- Returns what all servers have done since :since with the events of each tag. An empty tag means the whole namespace.
SELECT t.tag, m.published, m.claimed, m.completed, m.failed, m.pushes_succeeded, m.pushes_failed
FROM unnest(:tags) AS t(tag)
CROSS JOIN LATERAL (
    SELECT coalesce(sum(published), 0)::bigint AS published, coalesce(sum(claimed), 0)::bigint AS claimed,
           coalesce(sum(completed), 0)::bigint AS completed, coalesce(sum(failed), 0)::bigint AS failed,
           coalesce(sum(pushes_succeeded), 0)::bigint AS pushes_succeeded,
           coalesce(sum(pushes_failed), 0)::bigint AS pushes_failed
    FROM waybill.stats_minutes
    WHERE namespace_id = :namespace_id AND tag = t.tag COLLATE "C" AND minute >= :since
) m
