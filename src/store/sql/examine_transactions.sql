-- :now timestamptz, :max_rows bigint
--
-- Returns the transactions of this database that have been open for the longest time and keep dead rows from being
-- removed, and how many sessions this role may not look at. Those of other databases do not matter for our tables.
SELECT json_build_object(
    'hidden', (SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND query = '<insufficient privilege>'),
    'role', current_user,
    'open', (
        SELECT coalesce(json_agg(json_build_object(
            'pid', pid, 'role', usename, 'application', application_name, 'state', state, 'seconds', seconds
        ) ORDER BY seconds DESC), '[]')
        FROM (
            SELECT pid, usename, application_name, state,
                   extract(epoch FROM coalesce(:now, now()) - xact_start)::float8 AS seconds
            FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
              AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
            ORDER BY xact_start
            LIMIT :max_rows
        ) t
    )
)::text AS facts
