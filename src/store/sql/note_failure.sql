-- Counts a failure of the endpoint $2. The one that makes it $4 in a row opens the breaker, and
-- nothing is sent there for $5 seconds. When a probe fails the next pause begins; a straggler
-- that was under way when the breaker opened changes nothing.
INSERT INTO waybill.endpoints AS e (namespace_id, url, failures_in_row, opened_at, paused_until, updated_at)
SELECT $1, $2, 1,
       CASE WHEN $4 <= 1 THEN t.now END,
       CASE WHEN $4 <= 1 THEN t.now + make_interval(secs => $5) END,
       t.now
FROM (SELECT coalesce($3, now()) AS now) t
ON CONFLICT (namespace_id, url) DO UPDATE
SET failures_in_row = e.failures_in_row + 1,
    opened_at = CASE WHEN e.opened_at IS NULL AND e.failures_in_row + 1 >= $4 THEN excluded.updated_at ELSE e.opened_at END,
    paused_until = CASE WHEN e.opened_at IS NULL AND e.failures_in_row + 1 >= $4
                        THEN greatest(e.paused_until, excluded.updated_at + make_interval(secs => $5))
                        WHEN e.opened_at IS NOT NULL AND $6 THEN excluded.updated_at + make_interval(secs => $5)
                        ELSE e.paused_until END,
    updated_at = excluded.updated_at
RETURNING coalesce(opened_at = updated_at, false) AS flag
