-- :now timestamptz, :count_cap bigint, :max_rows bigint
--
-- Returns the number of endpoints whose circuit breaker is open, up to :count_cap, and those that have been open for the
-- longest time.
WITH open AS MATERIALIZED (
    SELECT n.name AS namespace, e.url, e.failures_in_row,
           extract(epoch FROM coalesce(:now, now()) - e.opened_at)::float8 AS seconds
    FROM waybill.namespaces n
    CROSS JOIN LATERAL (
        SELECT url, failures_in_row, opened_at FROM waybill.endpoints
        WHERE namespace_id = n.id AND opened_at IS NOT NULL
        LIMIT :count_cap
    ) e
    LIMIT :count_cap
)
SELECT json_build_object(
    'open', (SELECT count(*) FROM open),
    'endpoints', (SELECT coalesce(json_agg(json_build_object(
                     'namespace', namespace, 'url', url, 'failures_in_row', failures_in_row, 'seconds', seconds
                  ) ORDER BY seconds DESC, url), '[]')
                  FROM (SELECT * FROM open ORDER BY seconds DESC, url LIMIT :max_rows) o)
)::text AS facts
