DROP INDEX waybill.deliveries_unhappy;
ALTER TABLE waybill.deliveries DROP COLUMN unhappy_status;
CREATE INDEX deliveries_unhappy ON waybill.deliveries (status, id)
    WHERE status IN ('FAILED', 'CANCELLED');
CREATE INDEX deliveries_in_flight ON waybill.deliveries (lease_expires_at)
    WHERE status = 'PROCESSING';
DROP TABLE waybill.lease_watch;
DROP SEQUENCE waybill.lease_watch_ids;
