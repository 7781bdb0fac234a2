-- How pushing stands. Nothing is counted beyond $3: a glance must not cost more the worse
-- things are.
SELECT (SELECT count(*) FROM (SELECT 1 FROM waybill.ready
                              WHERE namespace_id = $1 AND queue >= 's:' COLLATE "C" AND queue < 's;' COLLATE "C"
                              LIMIT $3) claimable)
       + (SELECT count(*) FROM (SELECT 1 FROM waybill.deliveries
                                WHERE due_at IS NOT NULL AND subscription_id IS NOT NULL ORDER BY due_at LIMIT $3) waiting)
           AS pushes_pending,
       (SELECT extract(epoch FROM coalesce($4, now()) - min(d.updated_at))::float8
        FROM unnest($2) AS q(queue)
        CROSS JOIN LATERAL (
            SELECT delivery_id FROM waybill.ready
            WHERE namespace_id = $1 AND queue = q.queue COLLATE "C" ORDER BY rank, seq LIMIT 1
        ) head
        CROSS JOIN LATERAL (SELECT updated_at FROM waybill.deliveries WHERE id = head.delivery_id OFFSET 0) d)
           AS oldest_push_seconds,
       (SELECT count(*) FROM (SELECT 1 FROM waybill.endpoints WHERE namespace_id = $1 AND opened_at IS NOT NULL LIMIT $3) open)
           AS breakers_open
