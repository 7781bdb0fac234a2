-- :days_ahead int
--
-- Creates the partitions of the event log for the weeks of today and of the next :days_ahead days. Returns which are new.
--
-- Fails if the log cannot be locked soon: whoever writes to it waits behind this statement, and a reader in front of it
-- may take long. Only other servers that do the same are waited for longer, before the log is asked for.
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(hashtext('waybill.create_event_log_partition'))::text AS is_ours
),
limited AS MATERIALIZED (
    SELECT set_config('lock_timeout', '50ms', true) AS setting FROM turn WHERE is_ours IS NOT NULL
)
SELECT waybill.create_event_log_partition((now() AT TIME ZONE 'UTC')::date + ahead) AS created
FROM limited
CROSS JOIN generate_series(0, :days_ahead, 7) AS ahead
WHERE setting IS NOT NULL
