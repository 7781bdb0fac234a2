-- An endpoint has answered: its failures are forgotten, and if its breaker was open, it closes.
-- A pause that the endpoint asked for itself stays. The row is read under lock, so that of many
-- successes at once only one is told that it closed the breaker. It is then addressed by its key and
-- not by its place: what was changed just before it was locked stands where we cannot see it.
WITH known AS MATERIALIZED (
    SELECT namespace_id, url, opened_at IS NOT NULL AS was_open
    FROM waybill.endpoints
    WHERE namespace_id = $1 AND url = $2 AND (failures_in_row > 0 OR opened_at IS NOT NULL)
    FOR UPDATE
)
UPDATE waybill.endpoints e
SET failures_in_row = 0, opened_at = NULL,
    paused_until = CASE WHEN k.was_open THEN NULL ELSE e.paused_until END,
    updated_at = coalesce($3, now())
FROM known k
WHERE e.namespace_id = k.namespace_id AND e.url = k.url
RETURNING k.was_open AS flag
