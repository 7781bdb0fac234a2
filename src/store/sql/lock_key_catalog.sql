-- Locks the catalog of keys: changes of keys take turns from here on. Its generation stays.
SELECT generation FROM waybill.key_catalog FOR UPDATE
