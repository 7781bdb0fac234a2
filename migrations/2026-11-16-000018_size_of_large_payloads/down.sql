ALTER TABLE waybill.events DROP COLUMN payload_bytes;
