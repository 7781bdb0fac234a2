-- :namespace_id int, :urls text[], :now timestamptz
--
-- Gives the right to probe endpoints back, for the next server that wants it. Rows are locked in the order of their
-- URLs' bytes, as everywhere, so that two transactions cannot deadlock.
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
