-- :namespace_id int, :now timestamptz, :ids bigint[], :large_payload_bytes int
--
-- Makes the pushes of open dead letters again that were removed, FAILED as they were, and their events, from the
-- snapshots of the dead letters. A dead letter of a deleted subscription is left alone: nobody could receive its push.
-- The caller has locked the removal of events, and replays the pushes in the same transaction.
--
-- An event that was removed comes back with its id. Its own delivery is a roll-up, even if workers once handled the
-- event: its state follows the pushes that are made again. Of an event that still exists, the failed pushes are counted
-- again.
--
-- The dead letters are locked before they are used: one that was deleted meanwhile would leave a failed push without a
-- dead letter. Those whose pushes exist are not locked here, because their deliveries come first. Whoever else locks one
-- of a missing push deletes it or encrypts its headers again, and waits for nothing while doing so.
WITH missing AS MATERIALIZED (
    SELECT l.id
    FROM unnest(:ids) AS wanted(id)
    CROSS JOIN LATERAL (
        SELECT id, delivery_id FROM waybill.dead_letters
        WHERE namespace_id = :namespace_id AND id = wanted.id AND replayed_at IS NULL
        OFFSET 0
    ) l
    LEFT JOIN LATERAL (
        SELECT true AS is_there FROM waybill.deliveries
        WHERE namespace_id = :namespace_id AND id = l.delivery_id OFFSET 0
    ) push ON true
    WHERE push.is_there IS NULL
    ORDER BY l.id
),
letters AS MATERIALIZED (
    SELECT l.*, coalesce((l.event ->> 'priority')::smallint, 0) AS priority,
           coalesce((l.event ->> 'max_retries')::integer, 3) AS max_retries,
           CASE WHEN l.event ->> 'payload' IS NOT NULL THEN l.event -> 'payload' END AS payload
    FROM missing
    CROSS JOIN LATERAL (
        SELECT id, delivery_id, event_id, subscription_id, lease_id, ordering_key, detail, event, subscription
        FROM waybill.dead_letters
        WHERE namespace_id = :namespace_id AND id = missing.id AND replayed_at IS NULL
        FOR UPDATE
    ) l
    CROSS JOIN LATERAL (
        SELECT FROM waybill.subscriptions
        WHERE namespace_id = :namespace_id AND id = l.subscription_id AND deleted_at IS NULL
        FOR SHARE
    ) s
),
wanted_events AS MATERIALIZED (
    SELECT DISTINCT ON (event_id) event_id, event, priority, max_retries, payload,
           count(*) OVER (PARTITION BY event_id)::integer AS failed
    FROM letters
    ORDER BY event_id, id
),
missing_events AS MATERIALIZED (
    SELECT w.*
    FROM wanted_events w
    LEFT JOIN LATERAL (
        SELECT true AS is_there FROM waybill.events WHERE namespace_id = :namespace_id AND id = w.event_id OFFSET 0
    ) e ON true
    WHERE e.is_there IS NULL
),
restored_events AS (
    INSERT INTO waybill.events
           (id, namespace_id, title, description, event_type, tags, labels, payload, priority, max_retries, backoff,
            ordering_key, correlation_id, traceparent, run_at, expires_at, payload_bytes, created_at)
    SELECT event_id, :namespace_id, event ->> 'title', event ->> 'description', event ->> 'event_type',
           coalesce(event ->> 'tags', ''),
           CASE WHEN event ->> 'labels' <> '{}' THEN event -> 'labels' END, payload, priority, max_retries,
           CASE WHEN event ->> 'backoff' IS NOT NULL THEN event -> 'backoff' END,
           event ->> 'ordering_key', event ->> 'correlation_id', event ->> 'traceparent',
           (event ->> 'run_at')::timestamptz, (event ->> 'expires_at')::timestamptz,
           CASE WHEN octet_length(payload::text) > :large_payload_bytes THEN octet_length(payload::text) END,
           (event ->> 'created_at')::timestamptz
    FROM missing_events
    RETURNING id
),
restored_tags AS (
    INSERT INTO waybill.event_tags (namespace_id, tag, event_id)
    SELECT :namespace_id, further.tag, m.event_id
    FROM missing_events m
    CROSS JOIN LATERAL unnest((string_to_array(m.event ->> 'tags', ','))[2:]) AS further(tag)
),
restored_work AS (
    INSERT INTO waybill.deliveries
           (id, event_id, namespace_id, status, listed_status, priority, max_retries, open_deliveries,
            failed_deliveries, updated_at)
    SELECT event_id, event_id, :namespace_id, 'FAILED', 'FAILED', priority, max_retries, 0, failed, coalesce(:now, now())
    FROM missing_events
),
-- The own row is written even if it counts no pushes: a removal that began before the push came back sees by that
-- that its event has changed. Rows are compared as in roll_up.sql.
counted_again AS (
    UPDATE waybill.deliveries o
    SET failed_deliveries = o.failed_deliveries + w.failed,
        status = CASE WHEN o.open_deliveries IS NULL THEN o.status
                      ELSE waybill.roll_up_status(o.open_deliveries, o.failed_deliveries + w.failed, o.cancel_requested)
                 END,
        listed_status = CASE WHEN o.open_deliveries IS NULL THEN o.listed_status
                             ELSE waybill.roll_up_status(o.open_deliveries, o.failed_deliveries + w.failed,
                                                         o.cancel_requested)
                        END,
        updated_at = coalesce(:now, now())
    FROM wanted_events w
    WHERE (o.namespace_id, o.id) >= (:namespace_id, w.event_id) AND (o.namespace_id, o.id) <= (:namespace_id, w.event_id)
)
INSERT INTO waybill.deliveries
       (id, event_id, namespace_id, subscription_id, status, listed_status, priority, max_retries, lease_id,
        ordering_key, last_error, updated_at)
SELECT delivery_id, event_id, :namespace_id, subscription_id, 'FAILED', 'FAILED', priority,
       coalesce((subscription ->> 'max_attempts')::integer, 1), lease_id, ordering_key, detail, coalesce(:now, now())
FROM letters
