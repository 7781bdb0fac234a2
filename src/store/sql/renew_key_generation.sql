-- Gives the catalog of keys a new generation, and tells the servers when the transaction commits. Its row lock
-- makes changes of keys happen one after the other.
WITH renewed AS (
    UPDATE waybill.key_catalog SET generation = waybill.random_generation() RETURNING generation
)
SELECT pg_notify('waybill_ready', 'keys') FROM renewed
