DROP FUNCTION waybill.create_event_log_partition(date);
DROP VIEW waybill.event_trails;
DROP TABLE waybill.event_log;
DROP SEQUENCE waybill.event_log_ids;
