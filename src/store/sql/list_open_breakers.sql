-- :namespace_id int, :now timestamptz, :max_rows bigint
--
-- Returns endpoints whose circuit breaker is open, each with its subscription if it has exactly one.
SELECT e.url, e.failures_in_row, extract(epoch FROM e.paused_until - coalesce(:now, now()))::float8 AS paused_for,
       s.subscription_id
FROM (
    SELECT * FROM waybill.endpoints
    WHERE namespace_id = :namespace_id AND opened_at IS NOT NULL
    ORDER BY url
    LIMIT :max_rows
) e
CROSS JOIN LATERAL (
    SELECT CASE WHEN count(*) = 1 THEN min(id) END AS subscription_id
    FROM (
        SELECT id FROM waybill.subscriptions
        WHERE namespace_id = e.namespace_id AND url = e.url AND deleted_at IS NULL
        LIMIT 2
    ) of_url
) s
ORDER BY e.url
