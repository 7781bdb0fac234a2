-- WHY: a view is replaced while servers read it. The sequence counts the tries, and the lock lets a test stop one in the
-- middle.
SELECT nextval('public.tries');
SET LOCAL lock_timeout = 0;
SELECT pg_advisory_xact_lock(4711);
SET LOCAL lock_timeout = '100ms';
CREATE OR REPLACE VIEW waybill.event_trails AS
    SELECT * FROM waybill.event_log WHERE delivery_id IS NULL AND action = 'COMPLETED'
    UNION ALL
    SELECT * FROM waybill.event_log WHERE delivery_id IS NOT NULL OR action <> 'COMPLETED';
