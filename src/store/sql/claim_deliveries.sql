-- Hands out up to $3 deliveries of the queues $2 to worker $5, in claim order.
--
-- The candidates are the first $4 of each queue, merged. The row that decides is the
-- delivery's: it is locked, skipping what others are just taking, and `d.ready_seq = c.seq`
-- is checked again on the locked version, so that an entry of `ready` that was taken between
-- our snapshot and our lock can never hand the work out twice, not even if it has come back
-- to `ready` at another place meanwhile.
--
-- If work is there but none of it could be had (all locked, or expired and not yet swept),
-- one row without an id says so.
WITH locked AS MATERIALIZED (
    SELECT d.id, d.event_id, c.rank, c.seq
    FROM (
        SELECT DISTINCT ON (r.rank, r.seq) r.rank, r.seq, r.delivery_id
        FROM unnest($2) AS q(queue)
        CROSS JOIN LATERAL (
            SELECT rank, seq, delivery_id
            FROM waybill.ready
            WHERE namespace_id = $1 AND queue = q.queue COLLATE "C"
            ORDER BY rank, seq
            LIMIT $4
        ) r
        ORDER BY r.rank, r.seq
    ) c
    JOIN waybill.deliveries d ON d.id = c.delivery_id AND d.ready_seq = c.seq
    WHERE d.expires_at IS NULL OR d.expires_at > coalesce($7, now())
    ORDER BY c.rank, c.seq
    LIMIT $3
    FOR UPDATE OF d SKIP LOCKED
),
claimed AS (
    UPDATE waybill.deliveries d
    SET status = 'PROCESSING',
        worker_id = $5,
        lease_id = d.lease_id + 1,
        lease_expires_at = coalesce($7, now()) + make_interval(secs => $6),
        started_at = NULL,
        ready_seq = NULL,
        updated_at = coalesce($7, now())
    FROM locked l
    WHERE d.id = l.id
    RETURNING d.id, d.event_id, l.rank, l.seq, d.status, d.retry_count, d.lease_id, d.due_at, d.worker_id,
              d.lease_expires_at, d.cancel_requested, d.progress, d.result, d.last_error, d.updated_at
),
taken AS (
    DELETE FROM waybill.ready r
    USING locked l
    JOIN waybill.events e ON e.id = l.event_id
    CROSS JOIN LATERAL unnest(e.tags) AS tag
    WHERE r.namespace_id = $1 AND r.queue = ('t:' || tag) COLLATE "C" AND r.rank = l.rank AND r.seq = l.seq
),
logged AS (
    INSERT INTO waybill.event_log (namespace_id, event_id, delivery_id, action, worker_id, lease_id, attempt, created_at)
    SELECT $1, event_id, id, 'PICKED', worker_id, lease_id, retry_count + 1, updated_at FROM claimed
)
SELECT c.rank, c.seq, c.id AS claimed_id,
       e.id, e.title, e.description, e.event_type, e.tags, e.labels, e.payload, e.priority, e.max_retries,
       e.ordering_key, e.correlation_id, e.traceparent, e.run_at, e.expires_at, e.created_at,
       c.status, c.retry_count, c.lease_id, c.due_at, c.worker_id, c.lease_expires_at, c.cancel_requested,
       c.progress, c.result, c.last_error, c.updated_at
FROM claimed c JOIN waybill.events e ON e.id = c.event_id
UNION ALL
SELECT 0, 0, NULL,
       0, '', NULL, NULL, '{}', NULL, NULL, 0::smallint, 0,
       NULL, NULL, NULL, NULL, NULL, now(),
       'PENDING', 0, 0, NULL, NULL, NULL, false,
       NULL, NULL, NULL, now()
WHERE NOT EXISTS (SELECT 1 FROM locked)
  AND EXISTS (SELECT 1 FROM unnest($2) AS q(queue)
              CROSS JOIN LATERAL (SELECT 1 FROM waybill.ready
                                  WHERE namespace_id = $1 AND queue = q.queue COLLATE "C"
                                  ORDER BY rank, seq LIMIT 1) r)
ORDER BY 1, 2
