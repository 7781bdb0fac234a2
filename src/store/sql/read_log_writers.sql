-- Returns the last id that was handed out for the event log, and the transactions that may hold such ids and are still
-- open. An entry with this id or a lower one can appear later only if one of these transactions writes it.
--
-- A transaction that writes to the event log locks the table (ROW EXCLUSIVE) when its statement is planned or its plan is
-- taken from the cache, so before it gets an id; and it keeps the lock until after its commit is visible. Therefore the
-- sequence must be read first. The inner query refers to what the outer one has read, so it runs later.
--
-- A transaction that is prepared (PREPARE TRANSACTION) loses its number, under which it was listed before.
SELECT ids.last_id, writers.open, writers.has_prepared, pg_is_in_recovery() AS is_standby
FROM (
    -- A sequence that was never used already shows its first value.
    SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END AS last_id FROM waybill.event_log_ids OFFSET 0
) ids
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(virtualtransaction), '{}') AS open, coalesce(bool_or(pid IS NULL), false) AS has_prepared
    FROM pg_locks
    WHERE ids.last_id >= 0
      AND locktype = 'relation' AND relation = 'waybill.event_log'::regclass AND mode = 'RowExclusiveLock' AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
) writers
