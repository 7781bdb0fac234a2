-- The endpoints $2 have answered: their failures are forgotten, and breakers that were open close. A
-- pause that an endpoint asked for itself stays. Rows are read under lock, so that of many successes
-- at once only one is told that it closed the breaker, and in the order in which note_failures.sql
-- locks them (that of the bytes), so that nobody waits in a circle. They are then addressed by key
-- and not by place: what was changed just before it was locked stands where we cannot see it.
-- Returns the endpoints whose breakers were open.
WITH known AS MATERIALIZED (
    SELECT namespace_id, url, opened_at IS NOT NULL AS was_open
    FROM waybill.endpoints
    WHERE namespace_id = $1 AND url = ANY ($2) AND (failures_in_row > 0 OR opened_at IS NOT NULL)
    ORDER BY url COLLATE "C"
    FOR UPDATE
), forgiven AS (
    UPDATE waybill.endpoints e
    SET failures_in_row = 0, opened_at = NULL,
        paused_until = CASE WHEN k.was_open THEN NULL ELSE e.paused_until END,
        updated_at = coalesce($3, now())
    FROM known k
    WHERE e.namespace_id = k.namespace_id AND e.url = k.url
    RETURNING e.url, k.was_open
)
SELECT url FROM forgiven WHERE was_open ORDER BY url
