-- :after_namespace_id int, :after_id bigint, :max_rows bigint
--
-- Returns the next tokens of sources.
SELECT namespace_id, id AS owner_id, id, token AS text
FROM waybill.sources
WHERE (namespace_id, id) > (:after_namespace_id, :after_id)
ORDER BY namespace_id, id
LIMIT :max_rows
