-- :namespace_id int, :after bigint, :max_rows bigint
--
-- Returns the number of the next events of a namespace behind the id :after, at most :max_rows, with the last of their
-- ids and the bytes of their payloads. Large payloads are not read: their size is stored.
SELECT count(*) AS events, coalesce(max(id), :after) AS last_id, coalesce(sum(bytes), 0)::bigint AS bytes
FROM (
    SELECT id, coalesce(payload_bytes, octet_length(payload::text), 0) AS bytes
    FROM waybill.events
    WHERE namespace_id = :namespace_id AND id > :after
    ORDER BY id
    LIMIT :max_rows
) e
