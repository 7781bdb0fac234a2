-- Returns the indexes that queries cannot use: those whose build was interrupted, and those whose build goes on. No
-- statement uses the former, and every write goes on to maintain them.
WITH found AS MATERIALIZED (
    SELECT c.relname::text AS name,
           EXISTS (SELECT 1 FROM pg_stat_progress_create_index p WHERE p.index_relid = i.indexrelid) AS is_being_built
    FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.relnamespace = 'waybill'::regnamespace AND c.relkind = 'i' AND NOT (i.indisvalid AND i.indisready)
)
SELECT json_build_object(
    'invalid', coalesce(json_agg(name ORDER BY name) FILTER (WHERE NOT is_being_built), '[]'),
    'being_built', coalesce(json_agg(name ORDER BY name) FILTER (WHERE is_being_built), '[]')
)::text AS facts
FROM found
