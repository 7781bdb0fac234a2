-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows rows of stats by minute that are older than :seconds seconds, the oldest first.
DELETE FROM waybill.stats_minutes
WHERE (namespace_id, tag, minute, server) IN (
    SELECT namespace_id, tag, minute, server
    FROM waybill.stats_minutes
    WHERE minute < coalesce(:now, now()) - make_interval(secs => :seconds)
    ORDER BY minute
    LIMIT :max_rows
)
