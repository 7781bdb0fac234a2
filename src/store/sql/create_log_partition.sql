-- :day date
--
-- Creates the partition of the week that contains :day. Returns whether it is new.
SELECT waybill.create_event_log_partition(:day) AS created
