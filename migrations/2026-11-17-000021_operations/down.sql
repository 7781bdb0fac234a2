DROP TABLE waybill.operations;
