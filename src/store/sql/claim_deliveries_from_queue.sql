-- :now timestamptz, :namespace_id int, :queue text, :from_rank smallint, :from_seq bigint, :window_size bigint,
-- :worker_ids text[], :lease_seconds double precision[], :max_bytes bigint, :small_payload_bytes int
--
-- Claims deliveries for workers that all ask for one queue, the most frequent claim of all. It does what
-- claim_deliveries.sql does for a single group with a single pull queue, which explains each step, in three quarters of
-- the time: nothing is merged, and nothing is numbered by group.
--
-- Returns the claimed deliveries: the first for the worker in :worker_ids[1] with a lease of :lease_seconds[1], and so on.
-- Every row says how many entries of the queue were read (`candidates`) and which was the first (`head_rank`,
-- `head_seq`). `place` is the number of the claimed entry among them: a gap before it means that entries were skipped. If
-- there are entries, but none could be claimed, there is one row without a `claimed_id`.
--
-- The event is looked up before the update, since the claimed payloads have at most :max_bytes, and once more by its
-- ctid for the result: its columns need not pass through every step.
WITH candidates AS MATERIALIZED (
    SELECT row_number() OVER ()::integer AS place, *
    FROM (
        SELECT ctid AS ready_ctid, rank, seq, delivery_id
        FROM waybill.ready
        WHERE namespace_id = :namespace_id AND queue = :queue COLLATE "C" AND (rank, seq) >= (:from_rank, :from_seq)
        ORDER BY rank, seq
        LIMIT :window_size
    ) entries
),
locked AS MATERIALIZED (
    -- The limit is below the windows, which read one row ahead: no row is locked that is not claimed.
    SELECT row_number() OVER first_come::integer AS slot, l.*,
           sum(coalesce(l.payload_bytes, :small_payload_bytes)) OVER first_come AS bytes_so_far
    FROM (
        SELECT c.place, c.ready_ctid, c.rank, c.seq, d.delivery_ctid, e.event_ctid, e.tags, e.payload_bytes
        FROM candidates c
        CROSS JOIN LATERAL (
            SELECT ctid AS delivery_ctid, event_id
            FROM waybill.deliveries
            WHERE namespace_id = :namespace_id AND id = c.delivery_id AND ready_seq = c.seq
              AND (expires_at IS NULL OR expires_at > coalesce(:now, now()))
            FOR UPDATE SKIP LOCKED
        ) d
        CROSS JOIN LATERAL (
            SELECT ctid AS event_ctid, tags, payload_bytes
            FROM waybill.events WHERE namespace_id = :namespace_id AND id = d.event_id
            OFFSET 0
        ) e
        LIMIT cardinality(:worker_ids)
    ) l
    WINDOW first_come AS (ROWS UNBOUNDED PRECEDING)
),
claimed AS (
    UPDATE waybill.deliveries d
    SET status = 'PROCESSING',
        worker_id = (:worker_ids)[l.slot],
        lease_id = CASE WHEN l.seq >= (SELECT first_ready_seq FROM waybill.histories
                                       WHERE first_id >= 0 ORDER BY first_id DESC LIMIT 1)
                        THEN l.seq ELSE nextval('waybill.ready_seq') END,
        lease_expires_at = coalesce(:now, now()) + make_interval(secs => (:lease_seconds)[l.slot]),
        started_at = NULL,
        ready_seq = NULL,
        updated_at = coalesce(:now, now())
    FROM locked l
    WHERE d.ctid = l.delivery_ctid AND (l.bytes_so_far <= :max_bytes OR l.slot = 1)
    RETURNING l.slot, l.place, l.ready_ctid, l.rank, l.seq, l.event_ctid, l.tags AS event_tags, d.id AS claimed_id,
              d.status, d.retry_count, d.lease_id, d.due_at, d.worker_id, d.lease_expires_at, d.cancel_requested,
              d.progress, d.result, d.last_error, d.updated_at
),
-- An event with several tags is in several queues.
leaving AS MATERIALIZED (
    SELECT ready_ctid AS entry_ctid FROM claimed
    UNION ALL
    SELECT r.entry_ctid
    FROM claimed c
    CROSS JOIN LATERAL (SELECT 't:' || tag AS queue FROM unnest(string_to_array(c.event_tags, ',')) AS tag OFFSET 0) q
    CROSS JOIN LATERAL (
        SELECT ctid AS entry_ctid
        FROM waybill.ready
        WHERE namespace_id = :namespace_id AND queue = q.queue COLLATE "C" AND rank = c.rank AND seq = c.seq
        OFFSET 0
    ) r
    WHERE strpos(c.event_tags, ',') > 0 AND q.queue <> :queue
),
entries_deleted AS (
    DELETE FROM waybill.ready r USING leaving l WHERE r.ctid = l.entry_ctid
),
watched AS (
    INSERT INTO waybill.lease_watch (look_at, namespace_id, delivery_ids)
    SELECT least(min(lease_expires_at), coalesce(:now, now()) + interval '10 seconds'), :namespace_id,
           array_agg(claimed_id)
    FROM claimed
    HAVING count(*) > 0
),
logged AS (
    INSERT INTO waybill.event_log (namespace_id, event_id, action, worker_id, lease_id, attempt, lease_seconds, created_at)
    SELECT :namespace_id, claimed_id, 'PICKED', worker_id, lease_id, retry_count + 1,
           -- Of the default nothing is written.
           nullif((:lease_seconds)[slot], 300)::real, updated_at
    FROM claimed
)
SELECT (SELECT count(*) FROM candidates)::integer AS candidates, head.rank AS head_rank, head.seq AS head_seq,
       c.place, c.rank, c.seq, c.slot, c.claimed_id,
       e.id, e.title, e.description, e.tags, e.event_type, e.labels, e.payload, e.priority, e.max_retries, e.run_at,
       e.expires_at, e.ordering_key, e.correlation_id, e.traceparent, e.created_at,
       c.status, c.retry_count, c.lease_id, c.due_at, c.worker_id, c.lease_expires_at, c.cancel_requested, c.progress,
       c.result, c.last_error, c.updated_at
FROM (SELECT rank, seq FROM candidates LIMIT 1) head
LEFT JOIN (claimed c JOIN waybill.events e ON e.ctid = c.event_ctid) ON true
