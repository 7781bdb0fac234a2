-- :after_namespace_id int, :after_id bigint, :max_rows bigint
--
-- Returns the next dead letters. The settings of a subscription that had no headers are NULL.
SELECT namespace_id, subscription_id AS owner_id, id,
       CASE WHEN subscription ->> 'headers' <> '{}' THEN subscription::text END AS text
FROM waybill.dead_letters
WHERE (namespace_id, id) > (:after_namespace_id, :after_id)
ORDER BY namespace_id, id
LIMIT :max_rows
