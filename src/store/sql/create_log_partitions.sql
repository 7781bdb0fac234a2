-- :days_ahead int
--
-- Creates the partitions of the event log for today and the next :days_ahead days. Returns which are new.
SELECT waybill.create_event_log_partition((now() AT TIME ZONE 'UTC')::date + ahead) AS created
FROM generate_series(0, :days_ahead) AS ahead
