DROP FUNCTION waybill.key_is_taken();
ALTER TABLE waybill.events
    DROP COLUMN key_origin, DROP COLUMN idempotency_key, DROP COLUMN published_by, DROP COLUMN client_address;
DROP TABLE waybill.idempotency_keys;
