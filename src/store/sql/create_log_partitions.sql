-- :days_ahead int
--
-- Creates the partitions of the event log for the weeks of today and of the next :days_ahead days. Returns which are new.
SELECT waybill.create_event_log_partition((now() AT TIME ZONE 'UTC')::date + ahead) AS created
FROM generate_series(0, :days_ahead, 7) AS ahead
