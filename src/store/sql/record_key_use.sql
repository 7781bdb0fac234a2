-- :now timestamptz, :namespace_ids int[], :ids bigint[]
--
-- Records that keys were used. Rows are locked in the order of their ids, which prevents deadlocks. The generation
-- of the catalog stays: nothing that servers keep in memory changes.
UPDATE waybill.api_keys k
SET last_used_at = greatest(k.last_used_at, coalesce(:now, now()))
FROM (
    SELECT k.namespace_id, k.id
    FROM unnest(:namespace_ids, :ids) AS wanted(namespace_id, id)
    JOIN waybill.api_keys k ON k.namespace_id = wanted.namespace_id AND k.id = wanted.id
    ORDER BY k.namespace_id, k.id
    FOR NO KEY UPDATE OF k
) AS used
WHERE k.namespace_id = used.namespace_id AND k.id = used.id
