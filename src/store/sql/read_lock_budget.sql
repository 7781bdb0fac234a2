-- Returns how many locks a read of the event log takes, and how many the database provides.
SELECT count(DISTINCT p.relid) FILTER (WHERE p.isleaf) AS partitions,
       count(DISTINCT p.relid) + count(i.indexrelid) AS locks_per_read,
       current_setting('max_locks_per_transaction')::bigint AS per_transaction,
       current_setting('max_locks_per_transaction')::bigint
       * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint) AS capacity
FROM pg_partition_tree('waybill.event_log') p
LEFT JOIN pg_index i ON i.indrelid = p.relid
