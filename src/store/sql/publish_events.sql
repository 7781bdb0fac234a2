    RETURNING id, tags, priority, max_retries, ordering_key, run_at, expires_at, created_at
),
-- The rows that hold the events' state, and what of the work can be claimed at once. Work with
-- an ordering key does not enter `ready` here: it waits for its turn, and advance_keys gives it
-- to whoever is at the head.
placed AS MATERIALIZED (
    SELECT stored.*,
           cardinality(tags) > 0 AS is_pull,
           CASE WHEN cardinality(tags) > 0 AND run_at > created_at THEN run_at END AS due_at,
           CASE WHEN cardinality(tags) > 0 AND ordering_key IS NULL AND (run_at IS NULL OR run_at <= created_at)
                THEN nextval('waybill.ready_seq') END AS ready_seq
    FROM stored
),
work AS (
    INSERT INTO waybill.deliveries
           (id, event_id, namespace_id, status, priority, max_retries, ready_seq, due_at, expires_at,
            ordering_key, order_seq, updated_at)
    SELECT id, id, $1, CASE WHEN is_pull THEN 'PENDING' ELSE 'COMPLETED' END, priority, max_retries,
           ready_seq, due_at,
           CASE WHEN is_pull THEN expires_at END,
           CASE WHEN is_pull THEN ordering_key END,
           CASE WHEN is_pull AND ordering_key IS NOT NULL THEN id END,
           created_at
    FROM placed
),
shown AS (
    INSERT INTO waybill.ready (namespace_id, queue, rank, seq, delivery_id)
    SELECT $1, 't:' || tag, -priority, ready_seq, id
    FROM placed CROSS JOIN LATERAL unnest(tags) AS tag
    WHERE ready_seq IS NOT NULL
)
SELECT id, created_at, run_at, due_at, ready_seq, 0 AS enqueued FROM placed ORDER BY id
