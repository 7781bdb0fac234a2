-- :after_namespace_id int, :after_id bigint, :max_rows bigint
--
-- Returns the next subscriptions, deleted ones included. The settings of one that has no headers are NULL.
SELECT namespace_id, id AS owner_id, id,
       CASE WHEN spec ->> 'headers' <> '{}' THEN spec::text END AS text
FROM waybill.subscriptions
WHERE (namespace_id, id) > (:after_namespace_id, :after_id)
ORDER BY namespace_id, id
LIMIT :max_rows
