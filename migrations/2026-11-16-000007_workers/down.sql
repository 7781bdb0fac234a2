DROP TABLE waybill.workers;
