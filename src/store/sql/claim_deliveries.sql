-- :now timestamptz, :group_limits bigint[], :first_slots int[], :queue_groups int[], :namespace_ids int[],
-- :queues text[], :from_ranks smallint[], :from_seqs bigint[], :window_sizes bigint[], :queue_lease_seconds int[],
-- :subscription_ids bigint[], :subscription_versions int[], :worker_ids text[], :lease_seconds double precision[],
-- :max_bytes bigint, :small_payload_bytes int
--
-- Claims deliveries for several groups of callers at once, so that the callers of many namespaces share a statement.
-- Queue n is :queues[n] of the namespace :namespace_ids[n], and belongs to the group :queue_groups[n]. From the queues
-- of group g, which are all of one namespace, up to :group_limits[g] deliveries are claimed, by priority and age.
-- Returns them: the first of group g for the worker in :worker_ids[:first_slots[g] + 1] with a lease of
-- :lease_seconds[:first_slots[g] + 1], the second for the next worker, and so on.
--
-- No two groups may have a queue of the same namespace, unless they are queues of pushes: an event can be in several
-- queues of its namespace, and both groups would claim it.
--
-- Pushes: one worker claims all of them, and the lease depends on the queue (:queue_lease_seconds). Each
-- queue belongs to one of :subscription_ids. Nothing is claimed from it if the subscription is no longer
-- active, or no longer at its version in :subscription_versions, since the caller would send with old
-- settings. For pull queues these three lists are NULL.
--
-- Candidates: the first :window_sizes[n] entries of queue n, from (:from_ranks, :from_seqs) on, all those of a group
-- merged. The row of each delivery is then locked, and rows that other transactions have locked are
-- skipped. `ready_seq = c.seq` is checked on the locked version of the row: if an entry of `ready` was
-- claimed after our snapshot, the delivery is not claimed a second time, not even if it has returned to
-- `ready` with another seq.
--
-- Plan: it must not depend on statistics, since these tables alternate between empty and full. Each step
-- takes the rows of the previous step and looks up one row for each, by its key (LATERAL, with OFFSET 0 or
-- FOR UPDATE as a fence) or by its ctid. No step joins two lists: with many groups that would compare each row with
-- each. So the candidates of a group are handed on as arrays (`merged`), and what a row needs to know about its queue
-- or its group is found with window functions.
--
-- A locked row keeps its ctid until we commit, so it is not looked up by key again. A row that was changed
-- between snapshot and lock, and can still be claimed, has a ctid that this statement does not see. It is
-- left for the next claim. All later steps use only the rows that `claimed` returns, so it is not changed.
--
-- Next position: `next_rank` and `next_seq` of each row are the position in the row's queue at which the
-- next claim may begin. If no candidate of the group was skipped, it is behind the last claimed row of the group,
-- otherwise it is the first candidate of the queue. For pushes it is always the first candidate: each queue has its own
-- limit, so the last claimed row says nothing about the other queues.
--
-- Payloads: the claimed payloads of all groups have at most :max_bytes, unless only one delivery is claimed. The first
-- delivery of each group is counted before the second of any. The size of small payloads is not stored; each counts as
-- :small_payload_bytes.
--
-- Entries left: rows without a `claimed_id` have the queues with entries that were not claimed
-- (`left_queue`, a number), and the number of these entries (`left_entries`). They exceeded the limit of their group or
-- :max_bytes, are being claimed by other transactions, or have expired and are not swept yet. For pushes these rows are
-- returned only if nothing was claimed.
--
-- The id of the lease is the entry's seq in `ready`. An entry that is older than the current history gets a
-- new number: before the restore, it may have been claimed under the old one.
WITH present AS MATERIALIZED (
    SELECT first_ready_seq FROM waybill.histories WHERE first_id >= 0 ORDER BY first_id DESC LIMIT 1
),
candidates AS MATERIALIZED (
    SELECT q.group_number, q.namespace_id AS group_namespace_id, q.queue_number::integer AS queue_number, r.*
    FROM unnest(:queue_groups, :namespace_ids, :queues, :from_ranks, :from_seqs, :window_sizes, :subscription_ids,
                :subscription_versions) WITH ORDINALITY
         AS q(group_number, namespace_id, queue, from_rank, from_seq, window_size, subscription_id, version,
              queue_number)
    LEFT JOIN LATERAL (
        SELECT true AS is_present
        FROM waybill.subscriptions
        WHERE namespace_id = q.namespace_id AND id = q.subscription_id AND version = q.version AND is_active
        OFFSET 0
    ) s ON true
    CROSS JOIN LATERAL (
        SELECT ready_ctid, rank, seq, delivery_id, first_value(rank) OVER () AS head_rank, first_value(seq) OVER () AS head_seq
        FROM (
            SELECT ctid AS ready_ctid, rank, seq, delivery_id
            FROM waybill.ready
            WHERE namespace_id = q.namespace_id AND queue = q.queue COLLATE "C" AND (rank, seq) >= (q.from_rank, q.from_seq)
            ORDER BY rank, seq
            LIMIT CASE WHEN q.subscription_id IS NULL OR s.is_present THEN q.window_size ELSE 0 END
        ) entries
    ) r
),
merged AS MATERIALIZED (
    SELECT group_number, min(group_namespace_id) AS group_namespace_id, array_agg(queue_number) AS queue_numbers,
           array_agg(ready_ctid) AS ready_ctids, array_agg(rank) AS ranks, array_agg(seq) AS seqs,
           array_agg(delivery_id) AS delivery_ids, array_agg(head_rank) AS head_ranks, array_agg(head_seq) AS head_seqs
    FROM (SELECT DISTINCT ON (group_number, rank, seq) * FROM candidates ORDER BY group_number, rank, seq) c
    GROUP BY group_number
),
locked AS MATERIALIZED (
    SELECT m.group_number, m.group_namespace_id, l.*
    FROM merged m
    CROSS JOIN LATERAL (
        SELECT row_number() OVER ()::integer AS slot, d.delivery_ctid, d.event_id, c.*
        FROM unnest(m.queue_numbers, m.ready_ctids, m.ranks, m.seqs, m.delivery_ids, m.head_ranks, m.head_seqs)
             WITH ORDINALITY AS c(queue_number, ready_ctid, rank, seq, delivery_id, head_rank, head_seq, place)
        CROSS JOIN LATERAL (
            SELECT ctid AS delivery_ctid, event_id
            FROM waybill.deliveries
            WHERE namespace_id = m.group_namespace_id AND id = c.delivery_id AND ready_seq = c.seq
              AND (expires_at IS NULL OR expires_at > coalesce(:now, now()))
            FOR UPDATE SKIP LOCKED
        ) d
        LIMIT (:group_limits)[m.group_number]
    ) l
),
fetched AS MATERIALIZED (
    SELECT l.*, e.*,
           sum(coalesce(e.payload_bytes, :small_payload_bytes)) OVER first_come AS bytes_so_far,
           row_number() OVER first_come AS turn
    FROM locked l
    CROSS JOIN LATERAL (
        SELECT * FROM waybill.events WHERE namespace_id = l.group_namespace_id AND id = l.event_id OFFSET 0
    ) e
    WINDOW first_come AS (ORDER BY l.slot, l.group_number)
),
claimed AS (
    UPDATE waybill.deliveries d
    SET status = 'PROCESSING',
        worker_id = (:worker_ids)[(:first_slots)[f.group_number] + f.slot],
        lease_id = CASE WHEN f.seq >= present.first_ready_seq THEN f.seq ELSE nextval('waybill.ready_seq') END,
        lease_expires_at = coalesce(:now, now())
                           + make_interval(secs => coalesce((:queue_lease_seconds)[f.queue_number],
                                                            (:lease_seconds)[(:first_slots)[f.group_number] + f.slot])),
        started_at = NULL,
        ready_seq = NULL,
        updated_at = coalesce(:now, now())
    FROM fetched f
    CROSS JOIN present
    WHERE d.ctid = f.delivery_ctid AND (f.bytes_so_far <= :max_bytes OR f.turn = 1)
    RETURNING f.*, d.id AS claimed_id, d.subscription_id, d.replay_of,
              d.status, d.retry_count, d.lease_id, d.due_at, d.worker_id, d.lease_expires_at, d.cancel_requested,
              d.progress, d.result, d.last_error, d.updated_at
),
left_over AS MATERIALIZED (
    SELECT queue_number, count(*)::integer AS entries
    FROM candidates
    WHERE (:queue_lease_seconds IS NULL OR NOT EXISTS (SELECT 1 FROM claimed)) AND seq NOT IN (SELECT seq FROM claimed)
    GROUP BY queue_number
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
        WHERE namespace_id = c.group_namespace_id AND queue = q.queue COLLATE "C" AND rank = c.rank AND seq = c.seq
        OFFSET 0
    ) r
    WHERE c.subscription_id IS NULL AND strpos(c.tags, ',') > 0 AND q.queue <> (:queues)[c.queue_number]
),
other_entries_deleted AS (
    DELETE FROM waybill.ready r USING other_entries e WHERE r.ctid = e.entry_ctid
),
watched AS (
    INSERT INTO waybill.lease_watch (look_at, namespace_id, delivery_ids)
    SELECT least(min(lease_expires_at), coalesce(:now, now()) + interval '10 seconds'), group_namespace_id,
           array_agg(claimed_id)
    FROM claimed
    GROUP BY group_namespace_id
),
logged AS (
    INSERT INTO waybill.event_log (namespace_id, event_id, delivery_id, action, worker_id, lease_id, attempt, lease_seconds,
                                   created_at)
    SELECT group_namespace_id, event_id, nullif(claimed_id, event_id), 'PICKED', worker_id, lease_id, retry_count + 1,
           -- Of the default nothing is written, nor of pushes, whose leases follow from their subscriptions.
           CASE WHEN subscription_id IS NULL
                THEN nullif((:lease_seconds)[(:first_slots)[group_number] + slot], 300)::real END,
           updated_at
    FROM claimed
)
-- The columns are listed, so that a connection can go on with this statement after a column was added to a table.
SELECT group_number, slot, claimed_id, subscription_id, replay_of, queue_number, next_rank, next_seq, left_queue,
       left_entries, id, title, description, tags, event_type, labels, payload, priority, max_retries, run_at, expires_at,
       ordering_key, correlation_id, traceparent, created_at,
       status, retry_count, lease_id, due_at, worker_id, lease_expires_at, cancel_requested, progress, result,
       last_error, updated_at
FROM (
    SELECT c.*,
           CASE WHEN c.is_gapless THEN c.last_rank ELSE c.head_rank END AS next_rank,
           CASE WHEN c.is_gapless THEN c.last_seq + 1 ELSE c.head_seq END AS next_seq,
           NULL::integer AS left_queue, NULL::integer AS left_entries
    FROM (
        SELECT claimed.*, last_value(rank) OVER whole_group AS last_rank, last_value(seq) OVER whole_group AS last_seq,
               last_value(place) OVER whole_group = count(*) OVER whole_group AND :queue_lease_seconds IS NULL AS is_gapless
        FROM claimed
        WINDOW whole_group AS (PARTITION BY group_number ORDER BY slot ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
    ) c
    UNION ALL
    SELECT c.*, NULL, NULL, NULL, NULL, NULL, l.queue_number, l.entries
    FROM left_over l
    LEFT JOIN claimed c ON false
) found
ORDER BY group_number, slot
