-- :now timestamptz, :catalog_namespace_ids int[], :generations bigint[], :namespace_ids int[], :titles text[],
-- :descriptions text[], :event_types text[],
-- :tags text[], :labels json[], :payloads json[], :priorities smallint[], :max_retries int[],
-- :backoffs json[], :ordering_keys text[], :correlation_ids text[], :traceparents text[],
-- :run_times timestamptz[], :delay_seconds double precision[], :expiry_times timestamptz[],
-- :payload_bytes int[], :publishers text[], :addresses text[], :key_origins bigint[], :idempotency_keys text[],
-- :fingerprints bytea[], :key_seconds double precision[]
--
-- Stores events as publish_events.sql does, and their idempotency keys, which must be new: if one is taken, the statement
-- fails with a unique violation, and nothing is stored. Most keys are new, and looking each one up before would cost about
-- as much as storing it. Keys are inserted in their order, as publish_and_fan_out.sql does.
WITH current_catalogs AS MATERIALIZED (
    SELECT m.namespace_id
    FROM unnest(:catalog_namespace_ids, :generations) AS m(namespace_id, generation)
    CROSS JOIN LATERAL (
        SELECT FROM waybill.subscription_catalog
        WHERE namespace_id = m.namespace_id AND generation = m.generation
        OFFSET 0
    ) c
),
stored AS (
    INSERT INTO waybill.events
           (id, namespace_id, title, description, event_type, tags, labels, payload, priority, max_retries,
            backoff, ordering_key, correlation_id, traceparent, run_at, expires_at, payload_bytes,
            created_at, published_by, client_address, key_origin, idempotency_key)
    SELECT nextval('waybill.ids'), t.namespace_id, t.title, t.description, t.event_type,
           t.tags, t.labels, t.payload, t.priority, t.max_retries, t.backoff, t.ordering_key,
           t.correlation_id, t.traceparent,
           coalesce(t.run_at, coalesce(:now, now()) + make_interval(secs => t.delay_seconds)), t.expires_at,
           t.payload_bytes, coalesce(:now, now()), t.published_by, t.client_address, t.key_origin, t.idempotency_key
    FROM unnest(:namespace_ids, :titles, :descriptions, :event_types, :tags, :labels, :payloads, :priorities, :max_retries,
                :backoffs, :ordering_keys, :correlation_ids, :traceparents, :run_times, :delay_seconds,
                :expiry_times, :payload_bytes, :publishers, :addresses, :key_origins, :idempotency_keys)
         AS t(namespace_id, title, description, event_type, tags, labels, payload, priority, max_retries, backoff,
              ordering_key, correlation_id, traceparent, run_at, delay_seconds, expires_at, payload_bytes,
              published_by, client_address, key_origin, idempotency_key)
    WHERE (SELECT count(*) FROM current_catalogs) = cardinality(:generations)
    RETURNING namespace_id, id, tags, priority, max_retries, ordering_key, run_at, expires_at, created_at, key_origin,
              idempotency_key
),
-- Ids are given in the order of the lists, so that the n-th id is that of the n-th event.
positioned AS MATERIALIZED (
    SELECT stored.*,
           row_number() OVER (ORDER BY id) AS ord,
           tags <> '' AS is_pull,
           CASE WHEN tags <> '' AND run_at > created_at THEN run_at END AS due_at,
           CASE WHEN tags <> '' AND ordering_key IS NULL AND (run_at IS NULL OR run_at <= created_at)
                THEN nextval('waybill.ready_seq') END AS ready_seq
    FROM stored
),
work AS (
    INSERT INTO waybill.deliveries
           (id, event_id, namespace_id, status, listed_status, priority, max_retries, ready_seq, due_at, expires_at,
            ordering_key, order_seq, updated_at)
    SELECT id, id, namespace_id, CASE WHEN is_pull THEN 'PENDING' ELSE 'COMPLETED' END::waybill.status,
           CASE WHEN NOT is_pull THEN 'COMPLETED'::waybill.status END, priority, max_retries, ready_seq, due_at,
           CASE WHEN is_pull THEN expires_at END,
           CASE WHEN is_pull THEN ordering_key END,
           CASE WHEN is_pull AND ordering_key IS NOT NULL THEN id END,
           created_at
    FROM positioned
),
ready_entries AS (
    INSERT INTO waybill.ready (namespace_id, queue, rank, seq, delivery_id)
    SELECT namespace_id, 't:' || tag, -priority, ready_seq, id
    FROM positioned CROSS JOIN LATERAL unnest(string_to_array(tags, ',')) AS tag
    WHERE ready_seq IS NOT NULL
),
new_keys AS (
    INSERT INTO waybill.idempotency_keys (namespace_id, origin, key, event_id, fingerprint, created_at, expires_at)
    SELECT namespace_id, key_origin, idempotency_key, id, (:fingerprints)[ord], created_at,
           created_at + make_interval(secs => (:key_seconds)[ord])
    FROM positioned
    WHERE idempotency_key IS NOT NULL
    ORDER BY namespace_id, key_origin, idempotency_key
),
further_tags AS (
    INSERT INTO waybill.event_tags (namespace_id, tag, event_id)
    SELECT namespace_id, tag, id
    FROM positioned CROSS JOIN LATERAL unnest((string_to_array(tags, ','))[2:]) AS tag
    WHERE strpos(tags, ',') > 0
)
SELECT id, created_at, run_at, due_at, ready_seq, 0 AS enqueued, true AS is_stored, false AS is_repeated, false AS is_reused,
       NULL::bytea AS known_fingerprint
FROM positioned ORDER BY id
