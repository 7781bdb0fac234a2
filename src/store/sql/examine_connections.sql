-- Returns how many clients the database accepts, and how many are connected.
SELECT json_build_object(
    'used', (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL),
    'max_connections', current_setting('max_connections')::bigint,
    'reserved', current_setting('superuser_reserved_connections')::bigint
)::text AS facts
