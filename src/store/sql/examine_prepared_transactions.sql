-- :now timestamptz, :max_rows bigint
--
-- Returns the oldest transactions of this database that are prepared for a commit in two phases. They hold their locks
-- and their snapshot until somebody ends them, even if the database is restarted.
SELECT json_build_object('prepared', coalesce(json_agg(json_build_object(
    'gid', gid, 'owner', owner, 'seconds', seconds
) ORDER BY seconds DESC), '[]'))::text AS facts
FROM (
    SELECT gid, owner, extract(epoch FROM coalesce(:now, now()) - prepared)::float8 AS seconds
    FROM pg_prepared_xacts
    WHERE database = current_database()
    ORDER BY prepared
    LIMIT :max_rows
) p
