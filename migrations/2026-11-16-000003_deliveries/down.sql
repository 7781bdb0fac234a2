DROP TABLE waybill.deliveries;
