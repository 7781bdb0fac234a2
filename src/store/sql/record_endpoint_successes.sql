-- :namespace_id int, :urls text[], :now timestamptz
--
-- Resets the failures of endpoints that responded, and closes their breakers. A pause that an endpoint asked for
-- itself stays. Rows are read under lock, so that of many successes at the same time only one returns that it closed
-- the breaker. They are locked in the order in which record_endpoint_failures.sql locks them (that of the bytes), so
-- that two transactions cannot deadlock. The update finds them by key and not by their position in the table: a row
-- that was changed just before it was locked has a new version that this snapshot cannot see.
-- Returns the endpoints whose breakers were open.
WITH known AS MATERIALIZED (
    SELECT namespace_id, url, opened_at IS NOT NULL AS was_open
    FROM waybill.endpoints
    WHERE namespace_id = :namespace_id AND url = ANY (:urls) AND (failures_in_row > 0 OR opened_at IS NOT NULL)
    ORDER BY url COLLATE "C"
    FOR UPDATE
), forgiven AS (
    UPDATE waybill.endpoints e
    SET failures_in_row = 0, opened_at = NULL,
        paused_until = CASE WHEN k.was_open THEN NULL ELSE e.paused_until END,
        updated_at = coalesce(:now, now())
    FROM known k
    WHERE e.namespace_id = k.namespace_id AND e.url = k.url
    RETURNING e.url, k.was_open
)
SELECT url FROM forgiven WHERE was_open ORDER BY url
