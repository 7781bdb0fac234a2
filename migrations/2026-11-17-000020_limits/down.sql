DROP TABLE waybill.servers;
DROP INDEX waybill.api_keys_with_limits;
DROP INDEX waybill.namespaces_with_limits;
ALTER TABLE waybill.api_keys DROP COLUMN publish_burst;
ALTER TABLE waybill.api_keys DROP COLUMN publishes_per_second;
