-- Delayed and retrying work whose time has come, the most overdue first, up to $2 of it, and
-- when the first of all falls due; if nothing waits, nothing does so before the next moment. The look
-- begins at $3.
SELECT coalesce((
           SELECT array_agg(id)
           FROM (SELECT id FROM waybill.deliveries
                 WHERE due_at >= coalesce($3, '-infinity') AND due_at <= coalesce($1, now())
                 ORDER BY due_at LIMIT $2) overdue
       ), '{}') AS ids,
       coalesce(head.due_at, coalesce($1, now()) + interval '1 microsecond') AS head,
       extract(epoch FROM head.due_at - coalesce($1, now()))::float8 AS head_in_seconds
FROM (SELECT) one
LEFT JOIN (
    SELECT due_at FROM waybill.deliveries
    WHERE due_at >= coalesce($3, '-infinity') ORDER BY due_at LIMIT 1
) head ON true
