-- :namespace_ids int[], :urls text[], :now timestamptz, :counts int[], :has_probe bool[], :breaker_failures int,
-- :breaker_seconds float8
--
-- Adds failures to endpoints, :counts of them to each of :urls. The failure that makes it :breaker_failures in a
-- row opens the breaker, and nothing is sent there for :breaker_seconds. A failed probe (:has_probe) begins the
-- next pause. If the breaker is already open, any other failure is only counted. Each endpoint must be given once
-- and in order, which prevents deadlocks. Returns the endpoints whose breakers were opened.
WITH updated AS (
    INSERT INTO waybill.endpoints AS e (namespace_id, url, failures_in_row, opened_at, paused_until, updated_at)
    SELECT t.namespace_id, t.url, t.failures,
           CASE WHEN t.failures >= :breaker_failures THEN t.now END,
           CASE WHEN t.failures >= :breaker_failures THEN t.now + make_interval(secs => :breaker_seconds) END,
           t.now
    FROM (SELECT namespace_id, url, failures, coalesce(:now, now()) AS now
          FROM unnest(:namespace_ids, :urls, :counts) AS u(namespace_id, url, failures)) t
    ON CONFLICT (namespace_id, url) DO UPDATE
    SET failures_in_row = e.failures_in_row + excluded.failures_in_row,
        opened_at = CASE WHEN e.opened_at IS NULL AND e.failures_in_row + excluded.failures_in_row >= :breaker_failures
                         THEN excluded.updated_at ELSE e.opened_at END,
        paused_until = CASE WHEN e.opened_at IS NULL AND e.failures_in_row + excluded.failures_in_row >= :breaker_failures
                            THEN greatest(e.paused_until, excluded.updated_at + make_interval(secs => :breaker_seconds))
                            WHEN e.opened_at IS NOT NULL
                                 AND EXISTS (SELECT FROM unnest(:namespace_ids, :urls, :has_probe) AS p(namespace_id, url, has_probe)
                                             WHERE p.namespace_id = e.namespace_id AND p.url = e.url AND p.has_probe)
                            THEN excluded.updated_at + make_interval(secs => :breaker_seconds)
                            ELSE e.paused_until END,
        updated_at = excluded.updated_at
    RETURNING e.namespace_id, e.url, e.opened_at = e.updated_at AS is_opened
)
SELECT namespace_id, url FROM updated WHERE is_opened ORDER BY namespace_id, url
