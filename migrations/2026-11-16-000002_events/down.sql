DROP TABLE waybill.events;
DROP SEQUENCE waybill.ids;
