-- Returns the namespaces.
SELECT id FROM waybill.namespaces ORDER BY id
