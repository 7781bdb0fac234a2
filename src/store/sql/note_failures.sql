-- Counts failures of the endpoints $2, each so often as $4 says. The one that makes it $5 in a row
-- opens the breaker, and nothing is sent there for $6 seconds. When a probe ($7) fails the next
-- pause begins; a straggler that was under way when the breaker opened changes nothing. Endpoints
-- come once each and in order, so that nobody waits in a circle. Returns those that were opened.
WITH noted AS (
    INSERT INTO waybill.endpoints AS e (namespace_id, url, failures_in_row, opened_at, paused_until, updated_at)
    SELECT $1, t.url, t.failures,
           CASE WHEN t.failures >= $5 THEN t.now END,
           CASE WHEN t.failures >= $5 THEN t.now + make_interval(secs => $6) END,
           t.now
    FROM (SELECT url, failures, coalesce($3, now()) AS now FROM unnest($2, $4) AS u(url, failures)) t
    ON CONFLICT (namespace_id, url) DO UPDATE
    SET failures_in_row = e.failures_in_row + excluded.failures_in_row,
        opened_at = CASE WHEN e.opened_at IS NULL AND e.failures_in_row + excluded.failures_in_row >= $5
                         THEN excluded.updated_at ELSE e.opened_at END,
        paused_until = CASE WHEN e.opened_at IS NULL AND e.failures_in_row + excluded.failures_in_row >= $5
                            THEN greatest(e.paused_until, excluded.updated_at + make_interval(secs => $6))
                            WHEN e.opened_at IS NOT NULL AND e.url = ANY ($7)
                            THEN excluded.updated_at + make_interval(secs => $6)
                            ELSE e.paused_until END,
        updated_at = excluded.updated_at
    RETURNING e.url, e.opened_at = e.updated_at AS is_opened
)
SELECT url FROM noted WHERE is_opened ORDER BY url
