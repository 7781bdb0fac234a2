-- Returns the version of PostgreSQL, and the settings that matter, as this connection has them.
SELECT json_build_object(
    'version', current_setting('server_version'),
    'version_num', current_setting('server_version_num')::int,
    'is_in_recovery', pg_is_in_recovery(),
    'is_read_only', current_setting('transaction_read_only')::boolean,
    'fsync', current_setting('fsync')::boolean,
    'full_page_writes', current_setting('full_page_writes')::boolean,
    'synchronous_commit', current_setting('synchronous_commit'),
    'autovacuum', current_setting('autovacuum')::boolean,
    'track_counts', current_setting('track_counts')::boolean,
    'transaction_isolation', current_setting('default_transaction_isolation'),
    'plan_cache_mode', current_setting('plan_cache_mode'),
    'enable_seqscan', current_setting('enable_seqscan')::boolean,
    'lock_timeout', current_setting('lock_timeout'),
    'idle_in_transaction_session_timeout', current_setting('idle_in_transaction_session_timeout')
)::text AS facts
