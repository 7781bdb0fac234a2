-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows rows of stats by hour that are older than :seconds seconds, the oldest first.
DELETE FROM waybill.stats_hours
WHERE (namespace_id, tag, hour, server) IN (
    SELECT namespace_id, tag, hour, server
    FROM waybill.stats_hours
    WHERE hour < coalesce(:now, now()) - make_interval(secs => :seconds)
    ORDER BY hour
    LIMIT :max_rows
)
