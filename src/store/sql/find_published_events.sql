-- :namespace_ids int[], :ids bigint[]
--
-- Returns the tags of events and when they were published, each with its number in the order given.
SELECT i.ord, e.tags, e.created_at
FROM unnest(:namespace_ids, :ids) WITH ORDINALITY AS i(namespace_id, id, ord)
CROSS JOIN LATERAL (
    SELECT tags, created_at FROM waybill.events WHERE namespace_id = i.namespace_id AND id = i.id OFFSET 0
) e
