DROP TABLE waybill.key_catalog;
DROP TABLE waybill.api_key_secrets;
DROP TABLE waybill.api_keys;
