-- Hands out up to $3 deliveries of the queues $2, in claim order: the first to worker $5[1]
-- with a lease of $6[1] seconds, the second to $5[2], and so on.
--
-- The candidates are the first $4 of each queue, from its mark ($8, $9) on, merged. The row that decides is the
-- delivery's: it is locked, skipping what others are just taking, and `d.ready_seq = c.seq`
-- is checked again on the locked version, so that an entry of `ready` that was taken between
-- our snapshot and our lock can never hand the work out twice, not even if it has come back
-- to `ready` at another place meanwhile.
--
-- What is locked stays where it is until we commit, so it is then addressed by its place
-- (ctid) and not looked up again. A row that was changed between snapshot and lock, and is
-- still to be had, stands at a place that this statement cannot see: it is left for the next
-- claim, and since everything after `claimed` goes by what was claimed, nothing else happens
-- to it.
--
-- Each row says where its queue's head stood, claimed or not: nothing before it is left, so
-- the next claim may begin there.
--
-- If work is there but none of it could be had (all locked, or expired and not yet swept),
-- one row without an id says so.
WITH candidates AS MATERIALIZED (
    SELECT r.ready_place, q.queue, r.rank, r.seq, r.delivery_id
    FROM unnest($2, $8, $9) AS q(queue, from_rank, from_seq)
    CROSS JOIN LATERAL (
        SELECT ctid AS ready_place, rank, seq, delivery_id
        FROM waybill.ready
        WHERE namespace_id = $1 AND queue = q.queue COLLATE "C" AND (rank, seq) >= (q.from_rank, q.from_seq)
        ORDER BY rank, seq
        LIMIT $4
    ) r
),
locked AS MATERIALIZED (
    SELECT d.ctid AS delivery_place, c.ready_place, c.queue, c.rank, c.seq,
           e.id, e.title, e.description, e.event_type, e.tags, e.labels, e.payload, e.priority, e.max_retries,
           e.ordering_key, e.correlation_id, e.traceparent, e.run_at, e.expires_at, e.created_at
    FROM (
        SELECT DISTINCT ON (rank, seq) ready_place, queue, rank, seq, delivery_id
        FROM candidates
        ORDER BY rank, seq
    ) c
    JOIN waybill.deliveries d ON d.id = c.delivery_id AND d.ready_seq = c.seq
    JOIN waybill.events e ON e.id = d.event_id
    WHERE d.expires_at IS NULL OR d.expires_at > coalesce($7, now())
    ORDER BY c.rank, c.seq
    LIMIT $3
    FOR UPDATE OF d SKIP LOCKED
),
numbered AS (
    SELECT row_number() OVER (ORDER BY rank, seq)::integer AS slot, locked.* FROM locked
),
claimed AS (
    UPDATE waybill.deliveries d
    SET status = 'PROCESSING',
        worker_id = ($5)[l.slot],
        lease_id = d.lease_id + 1,
        lease_expires_at = coalesce($7, now()) + make_interval(secs => ($6)[l.slot]),
        started_at = NULL,
        ready_seq = NULL,
        updated_at = coalesce($7, now())
    FROM numbered l
    WHERE d.ctid = l.delivery_place
    RETURNING l.slot, l.ready_place, l.queue, l.rank, l.seq, d.id AS claimed_id,
              l.id, l.title, l.description, l.event_type, l.tags, l.labels, l.payload, l.priority, l.max_retries,
              l.ordering_key, l.correlation_id, l.traceparent, l.run_at, l.expires_at, l.created_at,
              d.status, d.retry_count, d.lease_id, d.due_at, d.worker_id, d.lease_expires_at, d.cancel_requested,
              d.progress, d.result, d.last_error, d.updated_at
),
taken AS (
    DELETE FROM waybill.ready r USING claimed c WHERE r.ctid = c.ready_place
),
taken_elsewhere AS (
    DELETE FROM waybill.ready r
    USING claimed c CROSS JOIN LATERAL unnest(c.tags) AS tag
    WHERE 't:' || tag <> c.queue
      AND r.namespace_id = $1 AND r.queue = ('t:' || tag) COLLATE "C" AND r.rank = c.rank AND r.seq = c.seq
),
logged AS (
    INSERT INTO waybill.event_log (namespace_id, event_id, delivery_id, action, worker_id, lease_id, attempt, created_at)
    SELECT $1, id, claimed_id, 'PICKED', worker_id, lease_id, retry_count + 1, updated_at FROM claimed
)
SELECT slot, claimed_id, c.queue, head.rank, head.seq,
       id, title, description, event_type, tags, labels, payload, priority, max_retries,
       ordering_key, correlation_id, traceparent, run_at, expires_at, created_at,
       status, retry_count, lease_id, due_at, worker_id, lease_expires_at, cancel_requested,
       progress, result, last_error, updated_at
FROM claimed c
JOIN (SELECT DISTINCT ON (queue) queue, rank, seq FROM candidates ORDER BY queue, rank, seq) head ON head.queue = c.queue
UNION ALL
SELECT 0, NULL, '', 0::smallint, 0,
       0, '', NULL, NULL, '{}', NULL, NULL, 0::smallint, 0,
       NULL, NULL, NULL, NULL, NULL, now(),
       'PENDING', 0, 0, NULL, NULL, NULL, false,
       NULL, NULL, NULL, now()
WHERE NOT EXISTS (SELECT 1 FROM claimed)
  AND EXISTS (SELECT 1 FROM candidates)
ORDER BY 1
