-- Returns the present generation of the catalog of keys.
SELECT generation FROM waybill.key_catalog
