ALTER TABLE waybill.ready DROP COLUMN added_later;
ALTER TABLE waybill.event_log DROP COLUMN added_later;
ALTER TABLE waybill.deliveries DROP COLUMN added_later;
