-- :max_rows bigint
--
-- Returns the :max_rows tables with the most dead rows, as autovacuum estimates them, and the time since they were
-- vacuumed.
SELECT json_build_object('tables', coalesce(json_agg(json_build_object(
    'table', relname, 'live_rows', n_live_tup, 'dead_rows', n_dead_tup, 'vacuumed_seconds_ago', vacuumed_seconds_ago
) ORDER BY n_dead_tup DESC, relname), '[]'))::text AS facts
FROM (
    SELECT relname, n_live_tup, n_dead_tup,
           extract(epoch FROM now() - greatest(last_vacuum, last_autovacuum))::float8 AS vacuumed_seconds_ago
    FROM pg_stat_user_tables
    WHERE schemaname = 'waybill'
    ORDER BY n_dead_tup DESC, relname
    LIMIT :max_rows
) t
