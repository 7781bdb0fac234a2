ALTER TABLE waybill.deliveries DROP COLUMN cancel_reason;
