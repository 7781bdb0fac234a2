      AND (SELECT count(*) FROM held) = cardinality($20)
    RETURNING id, tags, priority, max_retries, ordering_key, run_at, expires_at, created_at
),
-- As in publish_events.sql; but an event that is only pushed, and to somebody, has a row that
-- counts its deliveries: $22 says how many each event has.
placed AS MATERIALIZED (
    SELECT numbered.*,
           CASE WHEN is_pull AND run_at > created_at THEN run_at END AS due_at,
           CASE WHEN is_pull AND ordering_key IS NULL AND (run_at IS NULL OR run_at <= created_at)
                THEN nextval('waybill.ready_seq') END AS ready_seq,
           CASE WHEN NOT is_pull THEN nullif(($22)[ord], 0) END AS open_deliveries
    FROM (SELECT stored.*, cardinality(tags) > 0 AS is_pull, row_number() OVER (ORDER BY id) AS ord FROM stored) numbered
),
work AS (
    INSERT INTO waybill.deliveries
           (id, event_id, namespace_id, status, priority, max_retries, ready_seq, due_at, expires_at,
            ordering_key, order_seq, open_deliveries, failed_deliveries, updated_at)
    SELECT id, id, $1, CASE WHEN is_pull OR open_deliveries > 0 THEN 'PENDING' ELSE 'COMPLETED' END, priority, max_retries,
           ready_seq, due_at,
           CASE WHEN is_pull THEN expires_at END,
           CASE WHEN is_pull THEN ordering_key END,
           CASE WHEN is_pull AND ordering_key IS NOT NULL THEN id END,
           open_deliveries, CASE WHEN open_deliveries IS NOT NULL THEN 0 END,
           created_at
    FROM placed
),
shown AS (
    INSERT INTO waybill.ready (namespace_id, queue, rank, seq, delivery_id)
    SELECT $1, 't:' || tag, -priority, ready_seq, id
    FROM placed CROSS JOIN LATERAL unnest(tags) AS tag
    WHERE ready_seq IS NOT NULL
),
-- One delivery for each pair of an event, by its number, and a subscription. Found by its
-- number in a list: a join would compare each with each.
lists AS MATERIALIZED (
    SELECT array_agg(id ORDER BY ord) AS ids, array_agg(priority ORDER BY ord) AS priorities,
           array_agg(run_at ORDER BY ord) AS run_ats, array_agg(expires_at ORDER BY ord) AS expiries,
           min(created_at) AS created_at
    FROM placed
),
pushes AS MATERIALIZED (
    SELECT p.*, nextval('waybill.ids') AS id,
           CASE WHEN run_at > created_at THEN run_at END AS due_at,
           CASE WHEN ordering_key IS NULL AND (run_at IS NULL OR run_at <= created_at)
                THEN nextval('waybill.ready_seq') END AS ready_seq
    FROM (
        SELECT l.ids[f.ord] AS event_id, f.subscription_id, f.max_attempts, f.ordering_key,
               l.priorities[f.ord] AS priority, l.run_ats[f.ord] AS run_at, l.expiries[f.ord] AS expires_at, l.created_at
        FROM lists l
        CROSS JOIN unnest($23, $24, $25, $26) AS f(ord, subscription_id, max_attempts, ordering_key)
        WHERE l.ids IS NOT NULL
    ) p
),
pushed AS (
    INSERT INTO waybill.deliveries
           (id, event_id, namespace_id, subscription_id, status, priority, max_retries, ready_seq, due_at,
            expires_at, ordering_key, order_seq, updated_at)
    SELECT id, event_id, $1, subscription_id, 'PENDING', priority, max_attempts, ready_seq, due_at,
           expires_at, ordering_key, CASE WHEN ordering_key IS NOT NULL THEN id END, created_at
    FROM pushes
),
pushes_shown AS (
    INSERT INTO waybill.ready (namespace_id, queue, rank, seq, delivery_id)
    SELECT $1, 's:' || subscription_id, -priority, ready_seq, id FROM pushes WHERE ready_seq IS NOT NULL
)
SELECT id, created_at, run_at, due_at, ready_seq, ($22)[ord] AS enqueued,
       CASE WHEN ord = 1 THEN (SELECT min(due_at) FROM pushes) END AS first_push_due_at,
       CASE WHEN ord = 1 THEN (SELECT array_agg(ready_seq ORDER BY id) FROM pushes) END AS push_seqs
FROM placed ORDER BY id
