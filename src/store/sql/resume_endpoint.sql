-- :namespace_id int, :url text, :now timestamptz
--
-- Ends the pause of an endpoint, closes its breaker and resets its failures, for an operator. Changes nothing if the
-- endpoint is neither paused nor failing. The row is read under lock and then found by its key, as in
-- record_endpoint_successes.sql. Returns whether the breaker was open.
WITH known AS MATERIALIZED (
    SELECT namespace_id, url, opened_at IS NOT NULL AS was_open
    FROM waybill.endpoints
    WHERE namespace_id = :namespace_id AND url = :url
      AND (failures_in_row > 0 OR opened_at IS NOT NULL OR paused_until > coalesce(:now, now()))
    FOR UPDATE
)
UPDATE waybill.endpoints e
SET failures_in_row = 0, opened_at = NULL, paused_until = NULL, updated_at = coalesce(:now, now())
FROM known k
WHERE e.namespace_id = k.namespace_id AND e.url = k.url
RETURNING k.was_open AS flag
