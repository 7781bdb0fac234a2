-- Of what has gone wrong, events and pushes are listed apart: one of them may be millions
-- where the other is few.
DROP INDEX waybill.deliveries_unhappy;
CREATE INDEX deliveries_unhappy_events ON waybill.deliveries (unhappy_status, id)
    WHERE unhappy_status IS NOT NULL AND subscription_id IS NULL;
CREATE INDEX deliveries_unhappy_pushes ON waybill.deliveries (unhappy_status, id)
    WHERE unhappy_status IS NOT NULL AND subscription_id IS NOT NULL;
