-- Pending work that has become worthless, the most overdue first, up to $2 of it, and when the
-- first of all becomes so. If nothing waits, nothing does so
-- before the next moment. The look begins at $3.
SELECT coalesce((
           SELECT array_agg(id)
           FROM (SELECT id FROM waybill.deliveries
                 WHERE expires_at >= coalesce($3, '-infinity') AND expires_at <= coalesce($1, now())
                   AND status = 'PENDING'
                 ORDER BY expires_at LIMIT $2) overdue
       ), '{}') AS ids,
       coalesce(head.expires_at, coalesce($1, now()) + interval '1 microsecond') AS head,
       extract(epoch FROM head.expires_at - coalesce($1, now()))::float8 AS head_in_seconds
FROM (SELECT) one
LEFT JOIN (
    SELECT expires_at FROM waybill.deliveries
    WHERE expires_at >= coalesce($3, '-infinity') ORDER BY expires_at LIMIT 1
) head ON true
