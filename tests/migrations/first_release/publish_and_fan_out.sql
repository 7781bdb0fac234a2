-- :namespace_id int, :now timestamptz, :titles text[], :descriptions text[], :event_types text[],
-- :tags text[], :labels json[], :payloads json[], :priorities smallint[], :max_retries int[],
-- :backoffs json[], :ordering_keys text[], :correlation_ids text[], :traceparents text[],
-- :run_times timestamptz[], :delay_seconds double precision[], :expiry_times timestamptz[],
-- :payload_bytes int[], :generation bigint, :subscription_ids bigint[], :subscription_versions int[],
-- :push_counts int[], :push_events int[], :push_subscription_ids bigint[], :push_max_attempts int[],
-- :push_ordering_keys text[]
--
-- Stores events as publish_events.sql does, and a delivery for each push. Event n has :push_counts[n] pushes;
-- each push names its event by that n (:push_events) and its subscription (:push_subscription_ids).
--
-- :subscription_ids are all subscriptions that receive any of the events, each once. They are locked: a
-- transaction that changes one waits until we commit. If one is no longer active, or no longer at its version
-- in :subscription_versions, nothing is stored or returned, and the caller matches again.
WITH locked_subscriptions AS MATERIALIZED (
    SELECT s.id
    FROM unnest(:subscription_ids, :subscription_versions) AS m(id, version)
    CROSS JOIN LATERAL (
        SELECT id FROM waybill.subscriptions
        WHERE namespace_id = :namespace_id AND id = m.id AND version = m.version AND is_active FOR SHARE
    ) s
),
stored AS (
    INSERT INTO waybill.events
           (id, namespace_id, title, description, event_type, tags, labels, payload, priority, max_retries,
            backoff, ordering_key, correlation_id, traceparent, run_at, expires_at, payload_bytes,
            created_at)
    SELECT nextval('waybill.ids'), :namespace_id, t.title, t.description, t.event_type,
           t.tags, t.labels, t.payload, t.priority, t.max_retries, t.backoff, t.ordering_key,
           t.correlation_id, t.traceparent,
           coalesce(t.run_at, coalesce(:now, now()) + make_interval(secs => t.delay_seconds)), t.expires_at,
           t.payload_bytes, coalesce(:now, now())
    FROM unnest(:titles, :descriptions, :event_types, :tags, :labels, :payloads, :priorities, :max_retries,
                :backoffs, :ordering_keys, :correlation_ids, :traceparents, :run_times, :delay_seconds,
                :expiry_times, :payload_bytes)
         AS t(title, description, event_type, tags, labels, payload, priority, max_retries, backoff,
              ordering_key, correlation_id, traceparent, run_at, delay_seconds, expires_at, payload_bytes)
    WHERE (SELECT generation FROM waybill.subscription_catalog WHERE namespace_id = :namespace_id) = :generation
      AND (SELECT count(*) FROM locked_subscriptions) = cardinality(:subscription_ids)
    RETURNING id, tags, priority, max_retries, ordering_key, run_at, expires_at, created_at
),
-- As in publish_events.sql, but the row of an event that is only pushed is a roll-up: it counts its pushes.
positioned AS MATERIALIZED (
    SELECT numbered.*,
           CASE WHEN is_pull AND run_at > created_at THEN run_at END AS due_at,
           CASE WHEN is_pull AND ordering_key IS NULL AND (run_at IS NULL OR run_at <= created_at)
                THEN nextval('waybill.ready_seq') END AS ready_seq,
           CASE WHEN NOT is_pull THEN nullif((:push_counts)[ord], 0) END AS open_deliveries
    FROM (SELECT stored.*, tags <> '' AS is_pull, row_number() OVER (ORDER BY id) AS ord FROM stored) numbered
),
work AS (
    INSERT INTO waybill.deliveries
           (id, event_id, namespace_id, status, listed_status, priority, max_retries, ready_seq, due_at, expires_at,
            ordering_key, order_seq, open_deliveries, failed_deliveries, updated_at)
    SELECT id, id, :namespace_id,
           CASE WHEN is_pull OR open_deliveries > 0 THEN 'PENDING' ELSE 'COMPLETED' END::waybill.status,
           CASE WHEN NOT is_pull AND open_deliveries > 0 THEN 'PENDING'::waybill.status
                WHEN NOT is_pull THEN 'COMPLETED'::waybill.status END,
           priority, max_retries, ready_seq, due_at,
           CASE WHEN is_pull THEN expires_at END,
           CASE WHEN is_pull THEN ordering_key END,
           CASE WHEN is_pull AND ordering_key IS NOT NULL THEN id END,
           open_deliveries, CASE WHEN open_deliveries IS NOT NULL THEN 0 END,
           created_at
    FROM positioned
),
ready_entries AS (
    INSERT INTO waybill.ready (namespace_id, queue, rank, seq, delivery_id)
    SELECT :namespace_id, 't:' || tag, -priority, ready_seq, id
    FROM positioned CROSS JOIN LATERAL unnest(string_to_array(tags, ',')) AS tag
    WHERE ready_seq IS NOT NULL
),
further_tags AS (
    INSERT INTO waybill.event_tags (namespace_id, tag, event_id)
    SELECT :namespace_id, tag, id
    FROM positioned CROSS JOIN LATERAL unnest((string_to_array(tags, ','))[2:]) AS tag
    WHERE strpos(tags, ',') > 0
),
-- The events as arrays, in which `pushes` finds each by its number: a join would compare each push with each
-- event.
lists AS MATERIALIZED (
    SELECT array_agg(id ORDER BY ord) AS ids, array_agg(priority ORDER BY ord) AS priorities,
           array_agg(run_at ORDER BY ord) AS run_ats, array_agg(expires_at ORDER BY ord) AS expiries,
           min(created_at) AS created_at
    FROM positioned
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
        CROSS JOIN unnest(:push_events, :push_subscription_ids, :push_max_attempts, :push_ordering_keys)
             AS f(ord, subscription_id, max_attempts, ordering_key)
        WHERE l.ids IS NOT NULL
    ) p
),
pushed AS (
    INSERT INTO waybill.deliveries
           (id, event_id, namespace_id, subscription_id, status, priority, max_retries, ready_seq, due_at,
            expires_at, ordering_key, order_seq, updated_at)
    SELECT id, event_id, :namespace_id, subscription_id, 'PENDING', priority, max_attempts, ready_seq, due_at,
           expires_at, ordering_key, CASE WHEN ordering_key IS NOT NULL THEN id END, created_at
    FROM pushes
),
push_ready_entries AS (
    INSERT INTO waybill.ready (namespace_id, queue, rank, seq, delivery_id)
    SELECT :namespace_id, 's:' || subscription_id, -priority, ready_seq, id FROM pushes WHERE ready_seq IS NOT NULL
)
SELECT id, created_at, run_at, due_at, ready_seq, (:push_counts)[ord] AS enqueued,
       CASE WHEN ord = 1 THEN (SELECT min(due_at) FROM pushes) END AS first_push_due_at,
       CASE WHEN ord = 1 THEN (SELECT array_agg(ready_seq ORDER BY id) FROM pushes) END AS push_seqs
FROM positioned ORDER BY id
