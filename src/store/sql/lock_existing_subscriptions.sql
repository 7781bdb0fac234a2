-- :namespace_ids int[], :ids bigint[]
--
-- Locks those of the subscriptions against deletion that have not been deleted, in the order given, and returns them.
SELECT s.namespace_id, s.id
FROM unnest(:namespace_ids, :ids) AS wanted(namespace_id, id)
CROSS JOIN LATERAL (
    SELECT namespace_id, id FROM waybill.subscriptions
    WHERE namespace_id = wanted.namespace_id AND id = wanted.id AND deleted_at IS NULL
    FOR SHARE
) s
