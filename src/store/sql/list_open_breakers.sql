-- :namespace_id int, :now timestamptz, :max_rows bigint
--
-- Returns endpoints whose circuit breaker is open.
SELECT url, failures_in_row, extract(epoch FROM paused_until - coalesce(:now, now()))::float8 AS paused_for
FROM waybill.endpoints
WHERE namespace_id = :namespace_id AND opened_at IS NOT NULL
ORDER BY url
LIMIT :max_rows
