DROP TABLE waybill.namespaces;
