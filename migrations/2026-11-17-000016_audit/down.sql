DROP TABLE waybill.audit_log;
ALTER TABLE waybill.deliveries DROP COLUMN cancel_actor;
DROP VIEW waybill.event_trails;
ALTER TABLE waybill.event_log DROP COLUMN actor;
CREATE VIEW waybill.event_trails AS
    SELECT * FROM waybill.event_log WHERE delivery_id IS NULL AND action = 'COMPLETED'
    UNION ALL
    SELECT * FROM waybill.event_log WHERE delivery_id IS NOT NULL OR action <> 'COMPLETED';
