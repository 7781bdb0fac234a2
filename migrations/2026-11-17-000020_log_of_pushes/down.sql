DROP INDEX waybill.event_log_of_pushes;
