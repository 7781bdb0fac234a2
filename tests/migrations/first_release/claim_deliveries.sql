-- :namespace_id int, :queues text[], :max_deliveries bigint, :window_sizes bigint[], :worker_ids text[],
-- :lease_seconds double precision[], :now timestamptz, :from_ranks smallint[], :from_seqs bigint[],
-- :queue_lease_seconds int[], :subscription_ids bigint[], :subscription_versions int[], :max_bytes bigint,
-- :small_payload_bytes bigint
--
-- Claims up to :max_deliveries deliveries of :queues, by priority and age. Returns them, the first for
-- :worker_ids[1] with a lease of :lease_seconds[1], the second for :worker_ids[2], and so on.
--
-- Pushes: one worker claims all of them, and the lease depends on the queue (:queue_lease_seconds). Each
-- queue belongs to one of :subscription_ids. Nothing is claimed from it if the subscription is no longer
-- active, or no longer at its version in :subscription_versions, since the caller would send with old
-- settings. For pull queues these three lists are NULL.
--
-- Candidates: the first :window_sizes[n] entries of each queue, from (:from_ranks, :from_seqs) on, all
-- merged. The row of each delivery is then locked, and rows that other transactions have locked are
-- skipped. `ready_seq = c.seq` is checked on the locked version of the row: if an entry of `ready` was
-- claimed after our snapshot, the delivery is not claimed a second time, not even if it has returned to
-- `ready` with another seq.
--
-- Plan: it must not depend on statistics, since these tables alternate between empty and full. Each step
-- takes the rows of the previous step and looks up one row for each, by its key (LATERAL, with OFFSET 0 or
-- FOR UPDATE as a fence) or by its ctid.
--
-- A locked row keeps its ctid until we commit, so it is not looked up by key again. A row that was changed
-- between snapshot and lock, and can still be claimed, has a ctid that this statement does not see. It is
-- left for the next claim. All later steps use only the rows that `claimed` returns, so it is not changed.
--
-- Next position: `next_rank` and `next_seq` of each row are the position in the row's queue at which the
-- next claim may begin. If no candidate was skipped, it is behind the last claimed row, otherwise it is the
-- first candidate of the queue. For pushes it is always the first candidate: each queue has its own limit,
-- so the last claimed row says nothing about the other queues.
--
-- Payloads: the claimed payloads have at most :max_bytes, unless only one delivery is claimed. The size of
-- small payloads is not stored; each counts as :small_payload_bytes.
--
-- Entries left: rows without a `claimed_id` have the queues with entries that were not claimed
-- (`left_queue`), and their number (`left_entries`). These entries exceeded :max_deliveries or :max_bytes,
-- are being claimed by other transactions, or have expired and are not swept yet. For pushes these rows are
-- returned only if nothing was claimed.
--
-- The id of the lease is the entry's seq in `ready`. An entry that is older than the current history gets a
-- new number: before the restore, it may have been claimed under the old one.
WITH present AS MATERIALIZED (
    SELECT first_ready_seq FROM waybill.histories WHERE first_id >= 0 ORDER BY first_id DESC LIMIT 1
),
candidates AS MATERIALIZED (
    SELECT r.ready_ctid, q.queue, q.lease_seconds, r.rank, r.seq, r.delivery_id
    FROM unnest(:queues, :from_ranks, :from_seqs, :window_sizes, :queue_lease_seconds, :subscription_ids,
                :subscription_versions)
         AS q(queue, from_rank, from_seq, window_size, lease_seconds, subscription_id, version)
    LEFT JOIN LATERAL (
        SELECT true AS is_present
        FROM waybill.subscriptions
        WHERE namespace_id = :namespace_id AND id = q.subscription_id AND version = q.version AND is_active
        OFFSET 0
    ) s ON true
    CROSS JOIN LATERAL (
        SELECT ctid AS ready_ctid, rank, seq, delivery_id
        FROM waybill.ready
        WHERE namespace_id = :namespace_id AND queue = q.queue COLLATE "C" AND (rank, seq) >= (q.from_rank, q.from_seq)
        ORDER BY rank, seq
        LIMIT CASE WHEN q.subscription_id IS NULL OR s.is_present THEN q.window_size ELSE 0 END
    ) r
),
locked AS MATERIALIZED (
    SELECT row_number() OVER ()::integer AS slot, d.delivery_ctid, d.event_id, c.ready_ctid, c.queue, c.lease_seconds,
           c.rank, c.seq
    FROM (
        SELECT DISTINCT ON (rank, seq) ready_ctid, queue, lease_seconds, rank, seq, delivery_id
        FROM candidates
        ORDER BY rank, seq
    ) c
    CROSS JOIN LATERAL (
        SELECT ctid AS delivery_ctid, event_id
        FROM waybill.deliveries
        WHERE namespace_id = :namespace_id AND id = c.delivery_id AND ready_seq = c.seq
          AND (expires_at IS NULL OR expires_at > coalesce(:now, now()))
        FOR UPDATE SKIP LOCKED
    ) d
    LIMIT :max_deliveries
),
fetched AS MATERIALIZED (
    SELECT l.*, e.*, sum(coalesce(e.payload_bytes, :small_payload_bytes)) OVER (ORDER BY l.slot) AS bytes_so_far
    FROM locked l
    CROSS JOIN LATERAL (
        SELECT * FROM waybill.events WHERE namespace_id = :namespace_id AND id = l.event_id OFFSET 0
    ) e
),
claimed AS (
    UPDATE waybill.deliveries d
    SET status = 'PROCESSING',
        worker_id = (:worker_ids)[f.slot],
        lease_id = CASE WHEN f.seq >= present.first_ready_seq THEN f.seq ELSE nextval('waybill.ready_seq') END,
        lease_expires_at = coalesce(:now, now())
                           + make_interval(secs => coalesce(f.lease_seconds, (:lease_seconds)[f.slot])),
        started_at = NULL,
        ready_seq = NULL,
        updated_at = coalesce(:now, now())
    FROM fetched f
    CROSS JOIN present
    WHERE d.ctid = f.delivery_ctid AND (f.bytes_so_far <= :max_bytes OR f.slot = 1)
    RETURNING f.*, d.id AS claimed_id, d.subscription_id, d.replay_of,
              d.status, d.retry_count, d.lease_id, d.due_at, d.worker_id, d.lease_expires_at, d.cancel_requested,
              d.progress, d.result, d.last_error, d.updated_at
),
left_over AS MATERIALIZED (
    SELECT queue, count(*)::integer AS entries
    FROM candidates
    WHERE (:queue_lease_seconds IS NULL OR NOT EXISTS (SELECT 1 FROM claimed)) AND seq NOT IN (SELECT seq FROM claimed)
    GROUP BY queue
),
last AS MATERIALIZED (
    SELECT l.rank, l.seq,
           (SELECT count(DISTINCT seq) FROM candidates WHERE (rank, seq) <= (l.rank, l.seq))
           = (SELECT count(*) FROM claimed) AND :queue_lease_seconds IS NULL AS is_gapless
    FROM (SELECT rank, seq FROM claimed ORDER BY rank DESC, seq DESC LIMIT 1) l
),
entries_deleted AS (
    DELETE FROM waybill.ready r USING claimed c WHERE r.ctid = c.ready_ctid
),
other_entries AS MATERIALIZED (
    SELECT r.entry_ctid
    FROM claimed c
    CROSS JOIN LATERAL (SELECT 't:' || tag AS queue FROM unnest(string_to_array(c.tags, ',')) AS tag OFFSET 0) q
    CROSS JOIN LATERAL (
        SELECT ctid AS entry_ctid
        FROM waybill.ready
        WHERE namespace_id = :namespace_id AND queue = q.queue COLLATE "C" AND rank = c.rank AND seq = c.seq
        OFFSET 0
    ) r
    WHERE c.subscription_id IS NULL AND q.queue <> c.queue
),
other_entries_deleted AS (
    DELETE FROM waybill.ready r USING other_entries e WHERE r.ctid = e.entry_ctid
),
watched AS (
    INSERT INTO waybill.lease_watch (look_at, namespace_id, delivery_ids)
    SELECT least(min(lease_expires_at), coalesce(:now, now()) + interval '10 seconds'), :namespace_id, array_agg(claimed_id)
    FROM claimed
    HAVING count(*) > 0
),
logged AS (
    INSERT INTO waybill.event_log (namespace_id, event_id, delivery_id, action, worker_id, lease_id, attempt, created_at)
    SELECT :namespace_id, event_id, nullif(claimed_id, event_id), 'PICKED', worker_id, lease_id, retry_count + 1, updated_at FROM claimed
)
-- The columns are listed, so that a connection can go on with this statement after a column was added to a table.
SELECT slot, claimed_id, subscription_id, replay_of, queue, next_rank, next_seq, left_queue, left_entries,
       id, title, description, tags, event_type, labels, payload, priority, max_retries, run_at, expires_at,
       ordering_key, correlation_id, traceparent, created_at,
       status, retry_count, lease_id, due_at, worker_id, lease_expires_at, cancel_requested, progress, result,
       last_error, updated_at
FROM (
    SELECT c.*,
           CASE WHEN last.is_gapless THEN last.rank ELSE head.rank END AS next_rank,
           CASE WHEN last.is_gapless THEN last.seq + 1 ELSE head.seq END AS next_seq,
           NULL::text AS left_queue, NULL::integer AS left_entries
    FROM claimed c
    CROSS JOIN last
    JOIN (SELECT DISTINCT ON (queue) queue, rank, seq FROM candidates ORDER BY queue, rank, seq) head ON head.queue = c.queue
    UNION ALL
    SELECT c.*, NULL, NULL, l.queue, l.entries
    FROM left_over l
    LEFT JOIN claimed c ON false
) found
ORDER BY slot
