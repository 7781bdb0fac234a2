DROP TABLE waybill.event_tags;
DROP TABLE waybill.events;
DROP SEQUENCE waybill.ids;
