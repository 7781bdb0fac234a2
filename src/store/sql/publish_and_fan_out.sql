-- :now timestamptz, :catalog_namespace_ids int[], :generations bigint[], :namespace_ids int[], :titles text[],
-- :descriptions text[], :event_types text[],
-- :tags text[], :labels json[], :payloads json[], :priorities smallint[], :max_retries int[],
-- :backoffs json[], :ordering_keys text[], :correlation_ids text[], :traceparents text[],
-- :run_times timestamptz[], :delay_seconds double precision[], :expiry_times timestamptz[],
-- :payload_bytes int[], :publishers text[], :addresses text[], :subscription_namespace_ids int[],
-- :subscription_ids bigint[], :subscription_versions int[],
-- :push_counts int[], :push_events int[], :push_subscription_ids bigint[], :push_max_attempts int[],
-- :push_ordering_keys text[], :worker_ids text[], :lease_seconds double precision[], :requests int[],
-- :key_origins bigint[], :idempotency_keys text[], :fingerprints bytea[], :key_seconds double precision[]
--
-- Stores events as publish_events.sql does, and a delivery for each push. Event n has :push_counts[n] pushes;
-- each push names its event by that n (:push_events) and its subscription (:push_subscription_ids), which is of the
-- same namespace.
--
-- :subscription_ids are all subscriptions that receive any of the events, each once. They are locked: a
-- transaction that changes one waits until we commit. If one is no longer active, or no longer at its version
-- in :subscription_versions, nothing is stored or returned, and the caller matches again.
--
-- :worker_ids[n] waits for event n, unless it is null. The event is handed over: stored as claimed by this
-- worker, with a lease of :lease_seconds[n] and its PICKED entry in the log, and without an entry in `ready`. An
-- event that the database's clock does not allow to be claimed yet, or no longer, is stored as if no worker waited.
--
-- Event n has the idempotency key :idempotency_keys[n] of :key_origins[n], unless it is null; no key may be given twice.
-- If the key is taken, the event is not stored: its row in the result is that of the event that has the key
-- (`is_repeated`). If that one has another fingerprint (`is_reused`), no event with the same number in :requests is
-- stored. Keys are inserted in their order, so that statements with the same keys wait for each other and do not
-- deadlock. A key that a concurrent transaction has just taken is not visible here; then the statement fails with a
-- conflict. The key is kept for :key_seconds[n], or if that is null, as long as the event.
WITH current_catalogs AS MATERIALIZED (
    SELECT m.namespace_id
    FROM unnest(:catalog_namespace_ids, :generations) AS m(namespace_id, generation)
    CROSS JOIN LATERAL (
        SELECT FROM waybill.subscription_catalog
        WHERE namespace_id = m.namespace_id AND generation = m.generation
        OFFSET 0
    ) c
),
locked_subscriptions AS MATERIALIZED (
    SELECT s.id
    FROM unnest(:subscription_namespace_ids, :subscription_ids, :subscription_versions) AS m(namespace_id, id, version)
    CROSS JOIN LATERAL (
        SELECT id FROM waybill.subscriptions
        WHERE namespace_id = m.namespace_id AND id = m.id AND version = m.version AND is_active FOR SHARE
    ) s
),
-- Ids are given before anything is stored, and each event keeps its number `ord`: not all of them may be stored.
input AS MATERIALIZED (
    SELECT t.*, nextval('waybill.ids') AS id, coalesce(:now, now()) AS created_at,
           k.event_id AS known_id, k.created_at AS known_at, k.fingerprint AS known_fingerprint,
           k.fingerprint <> t.fingerprint AS is_reused
    FROM unnest(:namespace_ids, :titles, :descriptions, :event_types, :tags, :labels, :payloads, :priorities, :max_retries,
                :backoffs, :ordering_keys, :correlation_ids, :traceparents, :run_times, :delay_seconds,
                :expiry_times, :payload_bytes, :publishers, :addresses, :requests, :key_origins, :idempotency_keys,
                :fingerprints, :key_seconds) WITH ORDINALITY
         AS t(namespace_id, title, description, event_type, tags, labels, payload, priority, max_retries, backoff,
              ordering_key, correlation_id, traceparent, run_time, delay_seconds, expires_at, payload_bytes, published_by,
              client_address, request, key_origin, idempotency_key, fingerprint, key_seconds, ord)
    LEFT JOIN LATERAL (
        SELECT event_id, created_at, fingerprint
        FROM waybill.idempotency_keys
        WHERE t.idempotency_key IS NOT NULL
          AND namespace_id = t.namespace_id AND origin = t.key_origin AND key = t.idempotency_key COLLATE "C"
        OFFSET 0
    ) k ON true
    WHERE (SELECT count(*) FROM current_catalogs) = cardinality(:generations)
      AND (SELECT count(*) FROM locked_subscriptions) = cardinality(:subscription_ids)
),
new_keys AS (
    INSERT INTO waybill.idempotency_keys (namespace_id, origin, key, event_id, fingerprint, created_at, expires_at)
    SELECT namespace_id, key_origin, idempotency_key, id, fingerprint, created_at,
           created_at + make_interval(secs => key_seconds)
    FROM input
    WHERE idempotency_key IS NOT NULL AND known_id IS NULL
      AND request NOT IN (SELECT request FROM input WHERE is_reused)
    ORDER BY namespace_id, key_origin, idempotency_key
    ON CONFLICT DO NOTHING
    RETURNING event_id
),
numbered AS MATERIALIZED (
    SELECT ord, namespace_id, id, tags, priority, max_retries, ordering_key, expires_at, created_at, known_id, known_at,
           known_fingerprint, is_reused, coalesce(run_time, created_at + make_interval(secs => delay_seconds)) AS run_at,
           tags <> '' AS is_pull,
           CASE WHEN :idempotency_keys IS NULL THEN true
                WHEN request IN (SELECT request FROM input WHERE is_reused) THEN false
                WHEN idempotency_key IS NULL OR id IN (SELECT event_id FROM new_keys) THEN true
                WHEN known_id IS NOT NULL THEN false
                ELSE waybill.key_is_taken() END AS is_new
    FROM input
),
stored AS (
    INSERT INTO waybill.events
           (id, namespace_id, title, description, event_type, tags, labels, payload, priority, max_retries,
            backoff, ordering_key, correlation_id, traceparent, run_at, expires_at, payload_bytes,
            created_at, key_origin, idempotency_key, published_by, client_address)
    SELECT id, namespace_id, title, description, event_type, tags, labels, payload, priority, max_retries, backoff,
           ordering_key, correlation_id, traceparent,
           coalesce(run_time, created_at + make_interval(secs => delay_seconds)), expires_at, payload_bytes, created_at,
           key_origin, idempotency_key, published_by, client_address
    FROM input
    WHERE :idempotency_keys IS NULL OR ord IN (SELECT ord FROM numbered WHERE is_new)
),
-- As in publish_events.sql, but the row of an event that is only pushed is a roll-up: it counts its pushes. The
-- seq of an event that is handed over is its lease instead of its position in `ready`.
positioned AS MATERIALIZED (
    SELECT sequenced.*,
           CASE WHEN worker_id IS NULL THEN seq END AS ready_seq,
           CASE WHEN worker_id IS NOT NULL THEN seq END AS lease_id,
           CASE WHEN worker_id IS NOT NULL THEN created_at + make_interval(secs => (:lease_seconds)[ord]) END
               AS lease_expires_at
    FROM (
        SELECT claimable.*,
               CASE WHEN is_pull AND run_at > created_at THEN run_at END AS due_at,
               CASE WHEN is_claimable THEN nextval('waybill.ready_seq') END AS seq,
               CASE WHEN is_claimable AND (expires_at IS NULL OR expires_at > created_at) THEN (:worker_ids)[ord] END
                   AS worker_id,
               CASE WHEN NOT is_pull THEN nullif((:push_counts)[ord], 0) END AS open_deliveries
        FROM (
            SELECT ord, namespace_id, id, tags, priority, max_retries, ordering_key, run_at, expires_at, created_at,
                   is_pull, is_pull AND ordering_key IS NULL AND (run_at IS NULL OR run_at <= created_at) AS is_claimable
            FROM numbered
            WHERE is_new
        ) claimable
    ) sequenced
),
work AS (
    INSERT INTO waybill.deliveries
           (id, event_id, namespace_id, status, listed_status, priority, max_retries, ready_seq, due_at, expires_at,
            worker_id, lease_id, lease_expires_at, ordering_key, order_seq, open_deliveries, failed_deliveries,
            updated_at)
    SELECT id, id, namespace_id,
           CASE WHEN worker_id IS NOT NULL THEN 'PROCESSING' WHEN is_pull OR open_deliveries > 0 THEN 'PENDING'
                ELSE 'COMPLETED' END::waybill.status,
           CASE WHEN NOT is_pull AND open_deliveries > 0 THEN 'PENDING'::waybill.status
                WHEN NOT is_pull THEN 'COMPLETED'::waybill.status END,
           priority, max_retries, ready_seq, due_at,
           CASE WHEN is_pull THEN expires_at END,
           worker_id, coalesce(lease_id, 0), lease_expires_at,
           CASE WHEN is_pull THEN ordering_key END,
           CASE WHEN is_pull AND ordering_key IS NOT NULL THEN id END,
           open_deliveries, CASE WHEN open_deliveries IS NOT NULL THEN 0 END,
           created_at
    FROM positioned
),
ready_entries AS (
    INSERT INTO waybill.ready (namespace_id, queue, rank, seq, delivery_id)
    SELECT namespace_id, 't:' || tag, -priority, ready_seq, id
    FROM positioned CROSS JOIN LATERAL unnest(string_to_array(tags, ',')) AS tag
    WHERE ready_seq IS NOT NULL
),
watched AS (
    INSERT INTO waybill.lease_watch (look_at, namespace_id, delivery_ids)
    SELECT least(min(lease_expires_at), coalesce(:now, now()) + interval '10 seconds'), namespace_id, array_agg(id)
    FROM positioned
    WHERE worker_id IS NOT NULL
    GROUP BY namespace_id
),
logged AS (
    INSERT INTO waybill.event_log (namespace_id, event_id, action, worker_id, lease_id, attempt, lease_seconds, created_at)
    -- Of the default length nothing is written.
    SELECT namespace_id, id, 'PICKED', worker_id, lease_id, 1, nullif((:lease_seconds)[ord], 300)::real, created_at
    FROM positioned
    WHERE worker_id IS NOT NULL
),
further_tags AS (
    INSERT INTO waybill.event_tags (namespace_id, tag, event_id)
    SELECT namespace_id, tag, id
    FROM positioned CROSS JOIN LATERAL unnest((string_to_array(tags, ','))[2:]) AS tag
    WHERE strpos(tags, ',') > 0
),
-- The events as arrays, in which `pushes` finds each by its number: a join would compare each push with each
-- event. An event that was not stored is null.
lists AS MATERIALIZED (
    SELECT array_agg(namespace_id ORDER BY ord) AS namespace_ids,
           array_agg(CASE WHEN is_new THEN id END ORDER BY ord) AS ids, array_agg(priority ORDER BY ord) AS priorities,
           array_agg(run_at ORDER BY ord) AS run_ats, array_agg(expires_at ORDER BY ord) AS expiries,
           min(created_at) AS created_at
    FROM numbered
),
pushes AS MATERIALIZED (
    SELECT p.*,
           CASE WHEN event_id IS NOT NULL THEN nextval('waybill.ids') END AS id,
           CASE WHEN event_id IS NOT NULL AND run_at > created_at THEN run_at END AS due_at,
           CASE WHEN event_id IS NOT NULL AND ordering_key IS NULL AND (run_at IS NULL OR run_at <= created_at)
                THEN nextval('waybill.ready_seq') END AS ready_seq
    FROM (
        SELECT f.place, l.namespace_ids[f.ord] AS namespace_id, l.ids[f.ord] AS event_id, f.subscription_id,
               f.max_attempts, f.ordering_key, l.priorities[f.ord] AS priority, l.run_ats[f.ord] AS run_at,
               l.expiries[f.ord] AS expires_at, l.created_at
        FROM lists l
        CROSS JOIN unnest(:push_events, :push_subscription_ids, :push_max_attempts, :push_ordering_keys) WITH ORDINALITY
             AS f(ord, subscription_id, max_attempts, ordering_key, place)
        WHERE l.ids IS NOT NULL
    ) p
),
pushed AS (
    INSERT INTO waybill.deliveries
           (id, event_id, namespace_id, subscription_id, status, priority, max_retries, ready_seq, due_at,
            expires_at, ordering_key, order_seq, updated_at)
    SELECT id, event_id, namespace_id, subscription_id, 'PENDING', priority, max_attempts, ready_seq, due_at,
           expires_at, ordering_key, CASE WHEN ordering_key IS NOT NULL THEN id END, created_at
    FROM pushes
    WHERE event_id IS NOT NULL
),
push_ready_entries AS (
    INSERT INTO waybill.ready (namespace_id, queue, rank, seq, delivery_id)
    SELECT namespace_id, 's:' || subscription_id, -priority, ready_seq, id FROM pushes WHERE ready_seq IS NOT NULL
)
SELECT ord, id, created_at, run_at, due_at, ready_seq, lease_id, lease_expires_at, enqueued, is_stored, is_repeated,
       is_reused, known_fingerprint,
       CASE WHEN ord = 1 THEN (SELECT min(due_at) FROM pushes) END AS first_push_due_at,
       CASE WHEN ord = 1 THEN (SELECT array_agg(ready_seq ORDER BY place) FROM pushes) END AS push_seqs
FROM (
    SELECT ord, id, created_at, run_at, due_at, ready_seq, lease_id, lease_expires_at, (:push_counts)[ord] AS enqueued,
           true AS is_stored, false AS is_repeated, false AS is_reused, NULL::bytea AS known_fingerprint
    FROM positioned
    UNION ALL
    SELECT ord, coalesce(known_id, id), coalesce(known_at, created_at), NULL, NULL, NULL, NULL, NULL, 0,
           false, known_id IS NOT NULL, coalesce(is_reused, false), known_fingerprint
    FROM numbered
    WHERE NOT is_new
) found
ORDER BY ord
