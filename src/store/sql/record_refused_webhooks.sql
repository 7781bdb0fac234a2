-- :namespace_ids int[], :ids bigint[], :refused bigint[], :last_at timestamptz[], :last_refusals text[]
--
-- Adds the webhooks that were refused. Rows are locked in the order of their keys, which prevents deadlocks. The version
-- and the generation of the catalog stay: nothing that servers keep in memory changes.
UPDATE waybill.sources s
SET refused = s.refused + counted.refused,
    last_refused_at = greatest(s.last_refused_at, counted.last_at),
    last_refusal = counted.last_refusal
FROM (
    SELECT s.namespace_id, s.id, t.refused, t.last_at, t.last_refusal
    FROM unnest(:namespace_ids, :ids, :refused, :last_at, :last_refusals)
         AS t(namespace_id, id, refused, last_at, last_refusal)
    JOIN waybill.sources s ON s.namespace_id = t.namespace_id AND s.id = t.id
    ORDER BY s.namespace_id, s.id
    FOR NO KEY UPDATE OF s
) AS counted
WHERE s.namespace_id = counted.namespace_id AND s.id = counted.id
