DROP INDEX waybill.lease_watch_of_namespace;
ALTER TABLE waybill.namespaces DROP COLUMN settings;
