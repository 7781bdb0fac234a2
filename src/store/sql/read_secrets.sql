-- :after_namespace_id int, :after_subscription_id bigint, :after_id bigint, :max_rows bigint
--
-- Returns the next secrets of subscriptions.
SELECT namespace_id, subscription_id AS owner_id, id, secret AS text
FROM waybill.subscription_secrets
WHERE (namespace_id, subscription_id, id) > (:after_namespace_id, :after_subscription_id, :after_id)
ORDER BY namespace_id, subscription_id, id
LIMIT :max_rows
