-- :day date, :lock_timeout text
--
-- Creates the partition of the week that contains :day. Fails if the log cannot be locked within :lock_timeout.
-- Returns whether the partition is new.
SELECT waybill.create_event_log_partition(:day) AS created
FROM (SELECT set_config('lock_timeout', :lock_timeout, true) AS setting OFFSET 0) s
WHERE s.setting IS NOT NULL
