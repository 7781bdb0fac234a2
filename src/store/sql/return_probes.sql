-- :namespace_id int, :urls text[], :now timestamptz
--
-- Returns the right to probe endpoints, so that the next server may take it. Rows are locked in the byte order of
-- their URLs, as in all statements, which prevents deadlocks.
WITH known AS MATERIALIZED (
    SELECT namespace_id, url
    FROM waybill.endpoints
    WHERE namespace_id = :namespace_id AND url = ANY (:urls) AND opened_at IS NOT NULL
    ORDER BY url COLLATE "C"
    FOR UPDATE
)
UPDATE waybill.endpoints e
SET paused_until = coalesce(:now, now())
FROM known k
WHERE e.namespace_id = k.namespace_id AND e.url = k.url
