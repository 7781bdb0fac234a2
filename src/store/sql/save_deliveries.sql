-- Writes back deliveries that were loaded under lock, and keeps `ready` in step: a row that
-- leaves `ready` takes its entries along, a row that enters gets new ones at the tail, in the
-- order in which the rows are given.
WITH input AS (
    SELECT t.*
    FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) WITH ORDINALITY
         AS t(id, status, retry_count, rescue_count, worker_id, lease_expires_at, cancel_requested, in_ready,
              due_at, expires_at, in_order, to_tail, started_at, settled_lease_id, settled_action,
              progress, result, last_error, ord)
),
placed AS (
    SELECT input.*,
           d.ready_seq AS old_ready_seq,
           CASE WHEN input.in_ready THEN coalesce(d.ready_seq, nextval('waybill.ready_seq')) END AS new_ready_seq,
           CASE WHEN input.to_tail THEN nextval('waybill.ids')
                WHEN input.in_order THEN d.order_seq END AS new_order_seq,
           d.namespace_id, d.priority, e.tags
    FROM input
    JOIN waybill.deliveries d ON d.id = input.id
    JOIN waybill.events e ON e.id = d.event_id
    ORDER BY input.ord
),
saved AS (
    UPDATE waybill.deliveries d
    SET status = p.status, retry_count = p.retry_count, rescue_count = p.rescue_count, worker_id = p.worker_id,
        lease_expires_at = p.lease_expires_at, cancel_requested = p.cancel_requested,
        ready_seq = p.new_ready_seq, due_at = p.due_at, expires_at = p.expires_at, order_seq = p.new_order_seq,
        started_at = p.started_at, settled_lease_id = p.settled_lease_id, settled_action = p.settled_action,
        progress = p.progress, result = p.result, last_error = p.last_error,
        updated_at = coalesce($1, now())
    FROM placed p
    WHERE d.id = p.id
    RETURNING d.id, d.priority, d.ready_seq, p.old_ready_seq
),
left_ready AS (
    DELETE FROM waybill.ready r
    USING placed p CROSS JOIN LATERAL unnest(p.tags) AS tag
    WHERE p.old_ready_seq IS NOT NULL AND p.new_ready_seq IS NULL
      AND r.namespace_id = p.namespace_id AND r.queue = ('t:' || tag) COLLATE "C"
      AND r.rank = -p.priority AND r.seq = p.old_ready_seq
),
entered_ready AS (
    INSERT INTO waybill.ready (namespace_id, queue, rank, seq, delivery_id)
    SELECT p.namespace_id, 't:' || tag, -p.priority, p.new_ready_seq, p.id
    FROM placed p CROSS JOIN LATERAL unnest(p.tags) AS tag
    WHERE p.old_ready_seq IS NULL AND p.new_ready_seq IS NOT NULL
)
SELECT id, (-priority)::smallint AS rank, ready_seq AS seq FROM saved WHERE ready_seq IS NOT NULL AND old_ready_seq IS NULL
