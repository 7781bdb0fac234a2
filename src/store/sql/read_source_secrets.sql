-- :after_namespace_id int, :after_source_id bigint, :after_id bigint, :max_rows bigint
--
-- Returns the next secrets of sources.
SELECT namespace_id, source_id AS owner_id, id, secret AS text
FROM waybill.source_secrets
WHERE (namespace_id, source_id, id) > (:after_namespace_id, :after_source_id, :after_id)
ORDER BY namespace_id, source_id, id
LIMIT :max_rows
