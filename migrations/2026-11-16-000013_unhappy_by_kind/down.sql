DROP INDEX waybill.deliveries_unhappy_pushes;
DROP INDEX waybill.deliveries_unhappy_events;
CREATE INDEX deliveries_unhappy ON waybill.deliveries (unhappy_status, id)
    WHERE unhappy_status IS NOT NULL;
