-- Stores events, the row that holds each one's state, and what of it can be claimed at once.
-- Work with an ordering key does not enter `ready` here: it waits for its turn, and
-- advance_keys gives it to whoever is at the head.
--
-- Ids are given out in the order of the rows. A column that no event uses comes as NULL
-- instead of a list of nulls.
WITH stored AS (
    INSERT INTO waybill.events
           (id, namespace_id, title, description, event_type, tags, labels, payload, priority, max_retries,
            backoff, ordering_key, correlation_id, traceparent, run_at, expires_at, created_at)
    SELECT nextval('waybill.ids'), $1, t.title, t.description, t.event_type, string_to_array(t.tags, ','), t.labels,
           t.payload, t.priority, t.max_retries, t.backoff, t.ordering_key, t.correlation_id, t.traceparent,
           coalesce(t.run_at, coalesce($2, now()) + make_interval(secs => t.delay_seconds)), t.expires_at,
           coalesce($2, now())
    FROM unnest($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
         AS t(title, description, event_type, tags, labels, payload, priority, max_retries, backoff,
              ordering_key, correlation_id, traceparent, run_at, delay_seconds, expires_at)
    RETURNING id, tags, priority, max_retries, ordering_key, run_at, expires_at, created_at
),
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
SELECT id, created_at, run_at, due_at, ready_seq FROM placed ORDER BY id
