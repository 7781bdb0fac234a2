-- :namespace_id int, :now timestamptz, :ids bigint[], :statuses text[], :retry_counts int[], :rescue_counts int[],
-- :worker_ids text[], :lease_expiry_times timestamptz[], :cancel_requested bool[], :in_ready bool[],
-- :due_times timestamptz[], :expiry_times timestamptz[], :in_order bool[], :to_tail bool[],
-- :start_times timestamptz[], :settled_lease_ids bigint[], :settled_actions text[], :progress json[],
-- :results json[], :last_errors text[], :max_retries int[], :cancel_reasons text[]
--
-- Saves deliveries that were loaded under lock, and updates `ready`: the entries of a delivery that leaves it
-- are deleted, and a delivery that enters it gets new entries at the end, in the order given. A lease that now
-- ends earlier is put on the list of leases for that time. Returns the deliveries that entered `ready`.
WITH input AS (
    SELECT t.*
    FROM unnest(:ids, :statuses, :retry_counts, :rescue_counts, :worker_ids, :lease_expiry_times,
                :cancel_requested, :in_ready, :due_times, :expiry_times, :in_order, :to_tail, :start_times,
                :settled_lease_ids, :settled_actions, :progress, :results, :last_errors, :max_retries,
                :cancel_reasons) WITH ORDINALITY
         AS t(id, status, retry_count, rescue_count, worker_id, lease_expires_at, cancel_requested, in_ready,
              due_at, expires_at, in_order, to_tail, started_at, settled_lease_id, settled_action,
              progress, result, last_error, max_retries, cancel_reason, ord)
),
positioned AS MATERIALIZED (
    SELECT input.*,
           d.delivery_ctid, d.ready_seq AS old_ready_seq, d.lease_expires_at AS old_lease_expires_at,
           CASE WHEN input.in_ready THEN coalesce(d.ready_seq, nextval('waybill.ready_seq')) END AS new_ready_seq,
           CASE WHEN input.to_tail THEN nextval('waybill.ids')
                WHEN input.in_order THEN d.order_seq END AS new_order_seq,
           d.namespace_id, d.priority, e.queues
    FROM input
    CROSS JOIN LATERAL (
        SELECT ctid AS delivery_ctid, event_id, subscription_id, namespace_id, priority, ready_seq, order_seq, lease_expires_at
        FROM waybill.deliveries WHERE namespace_id = :namespace_id AND id = input.id OFFSET 0
    ) d
    CROSS JOIN LATERAL (
        SELECT CASE WHEN d.subscription_id IS NULL THEN ARRAY(SELECT 't:' || tag FROM unnest(string_to_array(tags, ',')) AS tag)
                    ELSE ARRAY['s:' || d.subscription_id] END AS queues
        FROM waybill.events WHERE namespace_id = :namespace_id AND id = d.event_id OFFSET 0
    ) e
    ORDER BY input.ord
),
saved AS (
    UPDATE waybill.deliveries d
    SET status = p.status::waybill.status,
        listed_status = CASE WHEN p.status IN ('FAILED', 'CANCELLED') THEN p.status::waybill.status END,
        retry_count = p.retry_count, rescue_count = p.rescue_count, worker_id = p.worker_id,
        lease_expires_at = p.lease_expires_at,
        cancel_requested = p.cancel_requested, cancel_reason = p.cancel_reason,
        ready_seq = p.new_ready_seq, due_at = p.due_at, expires_at = p.expires_at, order_seq = p.new_order_seq,
        started_at = p.started_at, settled_lease_id = p.settled_lease_id, settled_action = p.settled_action::waybill.action,
        progress = p.progress, result = p.result, last_error = p.last_error, max_retries = p.max_retries,
        updated_at = coalesce(:now, now())
    FROM positioned p
    WHERE d.ctid = p.delivery_ctid
    RETURNING d.id, d.priority, d.ready_seq, p.old_ready_seq
),
leaving AS MATERIALIZED (
    SELECT r.entry_ctid
    FROM positioned p
    CROSS JOIN LATERAL unnest(p.queues) AS q(queue)
    CROSS JOIN LATERAL (
        SELECT ctid AS entry_ctid
        FROM waybill.ready
        WHERE namespace_id = p.namespace_id AND queue = q.queue COLLATE "C"
          AND rank = -p.priority AND seq = p.old_ready_seq
        OFFSET 0
    ) r
    WHERE p.old_ready_seq IS NOT NULL AND p.new_ready_seq IS NULL
),
left_ready AS (
    DELETE FROM waybill.ready r USING leaving l WHERE r.ctid = l.entry_ctid
),
entered_ready AS (
    INSERT INTO waybill.ready (namespace_id, queue, rank, seq, delivery_id)
    SELECT p.namespace_id, q.queue, -p.priority, p.new_ready_seq, p.id
    FROM positioned p CROSS JOIN LATERAL unnest(p.queues) AS q(queue)
    WHERE p.old_ready_seq IS NULL AND p.new_ready_seq IS NOT NULL
),
watched AS (
    INSERT INTO waybill.lease_watch (look_at, namespace_id, delivery_ids)
    SELECT min(lease_expires_at), :namespace_id, array_agg(id)
    FROM positioned
    WHERE lease_expires_at < old_lease_expires_at
    HAVING count(*) > 0
)
SELECT id, (-priority)::smallint AS rank, ready_seq AS seq
FROM saved
WHERE ready_seq IS NOT NULL AND old_ready_seq IS NULL
