-- :now timestamptz, :seconds double precision
--
-- Returns the weeks of the event log that ended more than :seconds seconds ago, the oldest first: partitions, and
-- tables that were partitions and are not dropped yet. Names say when a week begins: see create_event_log_partition.
SELECT p.name, p.is_attached,
       extract(epoch FROM coalesce(:now, now()) - make_interval(secs => :seconds) - p.ends)::float8 AS lag_seconds
FROM (
    SELECT c.relname::text AS name,
           EXISTS (SELECT 1 FROM pg_inherits i
                   WHERE i.inhrelid = c.oid AND i.inhparent = 'waybill.event_log'::regclass) AS is_attached,
           (to_date(right(c.relname, 8), 'YYYYMMDD') + 7)::timestamp AT TIME ZONE 'UTC' AS ends
    FROM pg_class c
    WHERE c.relnamespace = 'waybill'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^event_log_[0-9]{8}$'
) p
WHERE p.ends <= coalesce(:now, now()) - make_interval(secs => :seconds)
ORDER BY p.name
