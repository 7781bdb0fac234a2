-- :max_rows bigint
--
-- Returns the replication slots that hold back the most WAL, those that nobody reads first.
SELECT json_build_object('slots', coalesce(json_agg(json_build_object(
    'slot', slot_name, 'is_active', active, 'retained_bytes', retained_bytes, 'wal_status', wal_status,
    'holds_rows', xmin IS NOT NULL OR catalog_xmin IS NOT NULL
) ORDER BY active, retained_bytes DESC NULLS LAST, slot_name), '[]'))::text AS facts
FROM (
    SELECT slot_name, active, wal_status, xmin, catalog_xmin,
           pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
                           restart_lsn)::bigint AS retained_bytes
    FROM pg_replication_slots
    WHERE NOT temporary
    ORDER BY active, retained_bytes DESC NULLS LAST, slot_name
    LIMIT :max_rows
) s
