-- :now timestamptz, :catalog_namespace_ids int[], :generations bigint[], :namespace_ids int[], :titles text[],
-- :descriptions text[], :event_types text[],
-- :tags text[], :labels json[], :payloads json[], :priorities smallint[], :max_retries int[],
-- :backoffs json[], :ordering_keys text[], :correlation_ids text[], :traceparents text[],
-- :run_times timestamptz[], :delay_seconds double precision[], :expiry_times timestamptz[],
-- :payload_bytes int[], :publishers text[], :addresses text[]
--
-- Stores events without pushes and idempotency keys, in the order given, and their own deliveries. Returns them. Each
-- event belongs to the namespace in :namespace_ids; :catalog_namespace_ids has each of these namespaces once. Stores and returns nothing if
-- one of :generations is not the current generation of the catalog of its namespace: the caller then matches again.
--
-- A list that no event uses may be NULL instead of a list of nulls.
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
            created_at, published_by, client_address)
    SELECT nextval('waybill.ids'), t.namespace_id, t.title, t.description, t.event_type,
           t.tags, t.labels, t.payload, t.priority, t.max_retries, t.backoff, t.ordering_key,
           t.correlation_id, t.traceparent,
           coalesce(t.run_at, coalesce(:now, now()) + make_interval(secs => t.delay_seconds)), t.expires_at,
           t.payload_bytes, coalesce(:now, now()), t.published_by, t.client_address
    FROM unnest(:namespace_ids, :titles, :descriptions, :event_types, :tags, :labels, :payloads, :priorities, :max_retries,
                :backoffs, :ordering_keys, :correlation_ids, :traceparents, :run_times, :delay_seconds,
                :expiry_times, :payload_bytes, :publishers, :addresses)
         AS t(namespace_id, title, description, event_type, tags, labels, payload, priority, max_retries, backoff,
              ordering_key, correlation_id, traceparent, run_at, delay_seconds, expires_at, payload_bytes,
              published_by, client_address)
    WHERE (SELECT count(*) FROM current_catalogs) = cardinality(:generations)
    RETURNING namespace_id, id, tags, priority, max_retries, ordering_key, run_at, expires_at, created_at
),
-- Events that can be claimed at once get a seq in `ready`. An event with an ordering key does not: afterwards
-- the caller lets the head of each key into `ready`.
positioned AS MATERIALIZED (
    SELECT stored.*,
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
further_tags AS (
    INSERT INTO waybill.event_tags (namespace_id, tag, event_id)
    SELECT namespace_id, tag, id
    FROM positioned CROSS JOIN LATERAL unnest((string_to_array(tags, ','))[2:]) AS tag
    WHERE strpos(tags, ',') > 0
)
SELECT id, created_at, run_at, due_at, ready_seq, 0 AS enqueued, true AS is_stored, false AS is_repeated, false AS is_reused,
       NULL::bytea AS known_fingerprint
FROM positioned ORDER BY id
