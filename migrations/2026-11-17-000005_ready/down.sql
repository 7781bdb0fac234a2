DROP TABLE waybill.ready;
DROP SEQUENCE waybill.ready_seq;
