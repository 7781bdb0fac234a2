-- :namespace_ids int[], :urls text[], :now timestamptz
--
-- Returns the right to probe endpoints, so that the next server may take it. Rows are locked in the order of their
-- namespaces and in the byte order of their URLs, as in all statements, which prevents deadlocks.
WITH known AS MATERIALIZED (
    SELECT e.namespace_id, e.url
    FROM (SELECT DISTINCT namespace_id, url COLLATE "C" AS url FROM unnest(:namespace_ids, :urls) AS t(namespace_id, url)
          ORDER BY 1, 2) wanted
    CROSS JOIN LATERAL (
        SELECT namespace_id, url FROM waybill.endpoints
        WHERE namespace_id = wanted.namespace_id AND url = wanted.url AND opened_at IS NOT NULL
        FOR UPDATE
    ) e
)
UPDATE waybill.endpoints e
SET paused_until = coalesce(:now, now())
FROM known k
WHERE e.namespace_id = k.namespace_id AND e.url = k.url
