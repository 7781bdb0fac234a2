-- Hands out up to $3 deliveries of the queues $2, in claim order: the first to worker $5[1]
-- with a lease of $6[1] seconds, the second to $5[2], and so on. (Pushes have one worker, and
-- leases that go by the queue, $10. Nothing is handed out of the queue of a subscription, $11,
-- that is not at version $12 any more: whoever claims would send it as it said before.)
--
-- The candidates are the first $4[n] of queue n, from its mark ($8, $9) on, merged. The row
-- that decides is the delivery's: it is locked, skipping what others are just taking, and
-- `ready_seq = c.seq` is checked again on the locked version, so that an entry of `ready` that
-- was taken between our snapshot and our lock can never hand the work out twice, not even if
-- it has come back to `ready` at another place meanwhile.
--
-- The shape leaves the planner no choice, whatever the statistics say of tables that swing
-- between empty and full: each step takes the rows of the one before and looks up one row for
-- each, by its key (LATERAL, fenced by OFFSET 0 or FOR UPDATE) or by its place (ctid).
--
-- What is locked stays where it is until we commit, so it is then addressed by its place
-- (ctid) and not looked up again. A row that was changed between snapshot and lock, and is
-- still to be had, stands at a place that this statement cannot see: it is left for the next
-- claim, and since everything after `claimed` goes by what was claimed, nothing else happens
-- to it.
--
-- Each row says where the next claim may begin in its queue, since nothing is left before: if
-- none of the candidates had to be skipped, behind the last that was claimed; else where the
-- queue's head stood, claimed or not. (Always the latter for pushes: of each queue as much is
-- looked at as may be sent, so the last that was claimed says nothing of the other queues.)
--
-- What is handed out at once has at most $13 bytes of payloads, or is one delivery; small payloads
-- have no size on record and count as $14 bytes. What does not fit is left.
--
-- Rows without an id say in which queues entries were seen and left, and how many: they did not
-- fit, were asked for by nobody, are just being taken by others, or have expired and are not swept
-- yet. (For pushes only where nothing could be had.)
--
-- The lease is the entry's number. An entry that was there when the present history began gets
-- another one: before a restore, somebody may have claimed it under the same.
WITH present AS MATERIALIZED (
    SELECT first_ready_seq FROM waybill.histories WHERE first_id >= 0 ORDER BY first_id DESC LIMIT 1
),
candidates AS MATERIALIZED (
    SELECT r.ready_place, q.queue, q.lease_seconds, r.rank, r.seq, r.delivery_id
    FROM unnest($2, $8, $9, $4, $10, $11, $12)
         AS q(queue, from_rank, from_seq, window_size, lease_seconds, subscription_id, version)
    LEFT JOIN LATERAL (
        SELECT true AS is_present
        FROM waybill.subscriptions
        WHERE id = q.subscription_id AND version = q.version AND is_active
        OFFSET 0
    ) s ON true
    CROSS JOIN LATERAL (
        SELECT ctid AS ready_place, rank, seq, delivery_id
        FROM waybill.ready
        WHERE namespace_id = $1 AND queue = q.queue COLLATE "C" AND (rank, seq) >= (q.from_rank, q.from_seq)
        ORDER BY rank, seq
        LIMIT CASE WHEN q.subscription_id IS NULL OR s.is_present THEN q.window_size ELSE 0 END
    ) r
),
locked AS MATERIALIZED (
    SELECT row_number() OVER ()::integer AS slot, d.delivery_place, d.event_id, c.ready_place, c.queue, c.lease_seconds,
           c.rank, c.seq
    FROM (
        SELECT DISTINCT ON (rank, seq) ready_place, queue, lease_seconds, rank, seq, delivery_id
        FROM candidates
        ORDER BY rank, seq
    ) c
    CROSS JOIN LATERAL (
        SELECT ctid AS delivery_place, event_id
        FROM waybill.deliveries
        WHERE id = c.delivery_id AND ready_seq = c.seq
          AND (expires_at IS NULL OR expires_at > coalesce($7, now()))
        FOR UPDATE SKIP LOCKED
    ) d
    LIMIT $3
),
fetched AS MATERIALIZED (
    SELECT l.*, e.*, sum(coalesce(e.payload_bytes, $14)) OVER (ORDER BY l.slot) AS bytes_so_far
    FROM locked l
    CROSS JOIN LATERAL (
        SELECT id, title, description, event_type, tags, labels, payload, payload_bytes, priority, max_retries,
               ordering_key, correlation_id, traceparent, run_at, expires_at, created_at
        FROM waybill.events
        WHERE id = l.event_id
        OFFSET 0
    ) e
),
claimed AS (
    UPDATE waybill.deliveries d
    SET status = 'PROCESSING',
        worker_id = ($5)[f.slot],
        lease_id = CASE WHEN f.seq >= present.first_ready_seq THEN f.seq ELSE nextval('waybill.ready_seq') END,
        lease_expires_at = coalesce($7, now()) + make_interval(secs => coalesce(f.lease_seconds, ($6)[f.slot])),
        started_at = NULL,
        ready_seq = NULL,
        updated_at = coalesce($7, now())
    FROM fetched f
    CROSS JOIN present
    WHERE d.ctid = f.delivery_place AND (f.bytes_so_far <= $13 OR f.slot = 1)
    RETURNING f.slot, f.ready_place, f.queue, f.rank, f.seq, d.id AS claimed_id, d.event_id, d.subscription_id,
              d.replay_of,
              f.id, f.title, f.description, f.event_type, f.tags, f.labels, f.payload, f.priority, f.max_retries,
              f.ordering_key, f.correlation_id, f.traceparent, f.run_at, f.expires_at, f.created_at,
              d.status, d.retry_count, d.lease_id, d.due_at, d.worker_id, d.lease_expires_at, d.cancel_requested,
              d.progress, d.result, d.last_error, d.updated_at
),
left_over AS MATERIALIZED (
    SELECT queue, count(*)::integer AS entries
    FROM candidates
    WHERE ($10 IS NULL OR NOT EXISTS (SELECT 1 FROM claimed)) AND seq NOT IN (SELECT seq FROM claimed)
    GROUP BY queue
),
last AS MATERIALIZED (
    SELECT l.rank, l.seq,
           (SELECT count(DISTINCT seq) FROM candidates WHERE (rank, seq) <= (l.rank, l.seq))
           = (SELECT count(*) FROM claimed) AND $10 IS NULL AS is_gapless
    FROM (SELECT rank, seq FROM claimed ORDER BY rank DESC, seq DESC LIMIT 1) l
),
taken AS (
    DELETE FROM waybill.ready r USING claimed c WHERE r.ctid = c.ready_place
),
elsewhere AS MATERIALIZED (
    SELECT r.place
    FROM claimed c
    CROSS JOIN LATERAL (SELECT 't:' || tag AS queue FROM unnest(c.tags) AS tag OFFSET 0) q
    CROSS JOIN LATERAL (
        SELECT ctid AS place
        FROM waybill.ready
        WHERE namespace_id = $1 AND queue = q.queue COLLATE "C" AND rank = c.rank AND seq = c.seq
        OFFSET 0
    ) r
    WHERE c.subscription_id IS NULL AND q.queue <> c.queue
),
taken_elsewhere AS (
    DELETE FROM waybill.ready r USING elsewhere e WHERE r.ctid = e.place
),
watched AS (
    INSERT INTO waybill.lease_watch (look_at, delivery_ids)
    SELECT least(min(lease_expires_at), coalesce($7, now()) + interval '10 seconds'), array_agg(claimed_id)
    FROM claimed
    HAVING count(*) > 0
),
logged AS (
    INSERT INTO waybill.event_log (namespace_id, event_id, delivery_id, action, worker_id, lease_id, attempt, created_at)
    SELECT $1, event_id, claimed_id, 'PICKED', worker_id, lease_id, retry_count + 1, updated_at FROM claimed
)
SELECT slot, claimed_id, subscription_id, replay_of, c.queue,
       CASE WHEN last.is_gapless THEN last.rank ELSE head.rank END AS rank,
       CASE WHEN last.is_gapless THEN last.seq + 1 ELSE head.seq END AS seq,
       id, title, description, event_type, tags, labels, payload, priority, max_retries,
       ordering_key, correlation_id, traceparent, run_at, expires_at, created_at,
       status, retry_count, lease_id, due_at, worker_id, lease_expires_at, cancel_requested,
       progress, result, last_error, updated_at
FROM claimed c
CROSS JOIN last
JOIN (SELECT DISTINCT ON (queue) queue, rank, seq FROM candidates ORDER BY queue, rank, seq) head ON head.queue = c.queue
UNION ALL
SELECT entries, NULL, NULL, NULL, queue, 0::smallint, 0,
       0, '', NULL, NULL, '{}', NULL, NULL, 0::smallint, 0,
       NULL, NULL, NULL, NULL, NULL, now(),
       'PENDING', 0, 0, NULL, NULL, NULL, false,
       NULL, NULL, NULL, now()
FROM left_over
ORDER BY 1
