DROP TABLE waybill.refused_settlements;
DROP VIEW waybill.event_trails;
ALTER TABLE waybill.event_log DROP COLUMN lease_seconds;
CREATE VIEW waybill.event_trails AS
    SELECT * FROM waybill.event_log WHERE delivery_id IS NULL AND action = 'COMPLETED'
    UNION ALL
    SELECT * FROM waybill.event_log WHERE delivery_id IS NOT NULL OR action <> 'COMPLETED';
