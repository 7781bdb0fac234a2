-- :namespace_ids int[], :urls text[], :now timestamptz
--
-- Resets the failures of endpoints that responded, and closes their breakers. A pause that an endpoint
-- requested itself stays. Rows are read under lock, so only one of several concurrent successes reports that it
-- closed the breaker. Rows are locked in the order of namespaces and bytes, as in record_endpoint_failures.sql, which prevents deadlocks. The
-- update finds them by key and not by ctid: a row that was changed just before it was locked has a new version that
-- this snapshot cannot see.
-- Returns the endpoints whose breakers were open.
WITH known AS MATERIALIZED (
    SELECT e.namespace_id, e.url, e.was_open
    FROM (SELECT DISTINCT namespace_id, url COLLATE "C" AS url FROM unnest(:namespace_ids, :urls) AS t(namespace_id, url)
          ORDER BY 1, 2) wanted
    CROSS JOIN LATERAL (
        SELECT namespace_id, url, opened_at IS NOT NULL AS was_open
        FROM waybill.endpoints
        WHERE namespace_id = wanted.namespace_id AND url = wanted.url AND (failures_in_row > 0 OR opened_at IS NOT NULL)
        FOR UPDATE
    ) e
), reset AS (
    UPDATE waybill.endpoints e
    SET failures_in_row = 0, opened_at = NULL,
        paused_until = CASE WHEN k.was_open THEN NULL ELSE e.paused_until END,
        updated_at = coalesce(:now, now())
    FROM known k
    WHERE e.namespace_id = k.namespace_id AND e.url = k.url
    RETURNING e.namespace_id, e.url, k.was_open
)
SELECT namespace_id, url FROM reset WHERE was_open ORDER BY namespace_id, url
