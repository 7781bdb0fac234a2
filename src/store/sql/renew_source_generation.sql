-- Gives the catalog of sources a new generation, and tells the servers when the transaction commits. Its row lock
-- makes changes of sources happen one after the other.
WITH renewed AS (
    UPDATE waybill.source_catalog SET generation = waybill.random_generation() RETURNING generation
)
SELECT pg_notify('waybill_ready', 'sources') FROM renewed
