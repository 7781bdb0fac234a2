-- The first step of publishing: events are stored, if the server's copy of the subscriptions,
-- $19, is still the present one; else nothing is, and the caller matches anew.
--
-- Ids are given out in the order of the rows. A column that no event uses comes as NULL
-- instead of a list of nulls.
stored AS (
    INSERT INTO waybill.events
           (id, namespace_id, title, description, event_type, tags, labels, payload, priority, max_retries,
            backoff, ordering_key, correlation_id, traceparent, run_at, expires_at, payload_bytes,
            created_at)
    SELECT nextval('waybill.ids'), $1, t.title, t.description, t.event_type, string_to_array(t.tags, ','), t.labels,
           t.payload, t.priority, t.max_retries, t.backoff, t.ordering_key, t.correlation_id, t.traceparent,
           coalesce(t.run_at, coalesce($2, now()) + make_interval(secs => t.delay_seconds)), t.expires_at,
           t.payload_bytes, coalesce($2, now())
    FROM unnest($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
         AS t(title, description, event_type, tags, labels, payload, priority, max_retries, backoff,
              ordering_key, correlation_id, traceparent, run_at, delay_seconds, expires_at, payload_bytes)
    WHERE (SELECT generation FROM waybill.subscription_catalog WHERE namespace_id = $1) = $19
