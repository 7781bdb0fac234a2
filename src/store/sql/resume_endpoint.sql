-- An operator says that the endpoint $2 is well again: its pause is lifted, its breaker closes, and
-- its failures are forgotten. Nothing is changed where nothing keeps requests back. The row is read
-- under lock and then addressed by its key, as in note_successes.sql.
WITH known AS MATERIALIZED (
    SELECT namespace_id, url, opened_at IS NOT NULL AS was_open
    FROM waybill.endpoints
    WHERE namespace_id = $1 AND url = $2
      AND (failures_in_row > 0 OR opened_at IS NOT NULL OR paused_until > coalesce($3, now()))
    FOR UPDATE
)
UPDATE waybill.endpoints e
SET failures_in_row = 0, opened_at = NULL, paused_until = NULL, updated_at = coalesce($3, now())
FROM known k
WHERE e.namespace_id = k.namespace_id AND e.url = k.url
RETURNING k.was_open AS flag
