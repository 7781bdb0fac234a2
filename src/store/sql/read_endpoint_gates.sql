-- :namespace_ids int[], :subscription_ids bigint[], :now timestamptz
--
-- Returns whether pushes may be sent to :subscription_ids now. Every server reads this before every claim, so
-- an edit, a pause or an opened breaker takes effect on all servers at once.
SELECT s.namespace_id, s.id AS subscription_id, s.version, s.is_active, s.url,
       coalesce(e.failures_in_row, 0) AS failures_in_row,
       e.opened_at IS NOT NULL AS is_open,
       CASE WHEN e.paused_until > coalesce(:now, now())
            THEN extract(epoch FROM e.paused_until - coalesce(:now, now()))::float8 END AS paused_for
FROM unnest(:namespace_ids, :subscription_ids) AS q(namespace_id, id)
CROSS JOIN LATERAL (
    SELECT id, namespace_id, version, is_active, url FROM waybill.subscriptions
    WHERE namespace_id = q.namespace_id AND id = q.id OFFSET 0
) s
LEFT JOIN LATERAL (
    SELECT failures_in_row, opened_at, paused_until
    FROM waybill.endpoints WHERE namespace_id = s.namespace_id AND url = s.url OFFSET 0
) e ON true
