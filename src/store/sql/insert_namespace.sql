-- :name text, :settings json, :now timestamptz, :max_namespaces bigint
--
-- Creates a namespace with all that it needs: its row, and its catalog of subscriptions. Returns it. Returns nothing if the
-- name is taken, or if there are :max_namespaces already. The caller has locked the namespace `default`, so ids are
-- given out one after the other. There is no sequence: those are moved far ahead after a restore, and ids are small.
WITH created AS (
    INSERT INTO waybill.namespaces (id, name, settings, created_at)
    SELECT max(n.id) + 1, :name, :settings, coalesce(:now, now())
    FROM waybill.namespaces n
    HAVING count(*) < :max_namespaces
    ON CONFLICT (name) DO NOTHING
    RETURNING id, name, settings, created_at
),
catalog AS (
    INSERT INTO waybill.subscription_catalog (namespace_id, generation)
    SELECT id, waybill.random_generation() FROM created
)
SELECT id, name, settings, created_at FROM created
