DROP TABLE waybill.source_catalog;
DROP TABLE waybill.source_secrets;
DROP TABLE waybill.sources;
