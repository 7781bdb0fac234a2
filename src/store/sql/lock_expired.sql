-- :now timestamptz, :max_rows bigint, :from timestamptz
--
-- Locks pending deliveries that have expired, with the rows that are written when one ends.
-- Rows are read off the index from :from on, the most overdue first, until :max_rows of them are locked or 20 times as
-- many have been read: each skipped row costs a look-up, and may cost a row lock. `overdue.rs` explains the locks.
-- The condition is checked again on the locked version, as `(…) IS TRUE`, which no index serves, so that the row is
-- always looked up by its id.
--
-- Also returns the earliest expires_at of all, locked or not. It is at most one microsecond after :now: another server may store an
-- earlier one than this scan has seen, but only one in the future.
WITH locked AS MATERIALIZED (
    SELECT d.namespace_id, d.id
    FROM (
        SELECT namespace_id, id FROM waybill.deliveries
        WHERE expires_at >= coalesce(:from, '-infinity') AND expires_at <= coalesce(:now, now()) AND status = 'PENDING'
        ORDER BY expires_at
        LIMIT :max_rows * 20
    ) c
    CROSS JOIN LATERAL (
        SELECT id, event_id, subscription_id, namespace_id, ordering_key, order_seq, rescue_count
        FROM waybill.deliveries
        WHERE namespace_id = c.namespace_id AND id = c.id AND status = 'PENDING' AND (expires_at <= coalesce(:now, now())) IS TRUE
          AND (ordering_key IS NULL OR pg_try_advisory_xact_lock(
                   1463900482, (hashtextextended(namespace_id || ':' || ordering_key, 0) & 1023)::integer))
        FOR UPDATE SKIP LOCKED
    ) d
    LEFT JOIN LATERAL (
        -- The event's own row, if it counts the results of pushes.
        SELECT id FROM waybill.deliveries
        WHERE namespace_id = d.namespace_id AND id = d.event_id AND d.subscription_id IS NOT NULL AND open_deliveries IS NOT NULL
        OFFSET 0
    ) roll_up ON true
    LEFT JOIN LATERAL (
        SELECT true AS is_locked FROM waybill.deliveries
    WHERE namespace_id = d.namespace_id AND id = roll_up.id FOR UPDATE SKIP LOCKED
    ) roll_up_lock ON true
    LEFT JOIN LATERAL (
        -- The next delivery of the ordering key.
        SELECT id, status = 'PENDING' AND ready_seq IS NULL AND due_at IS NULL AS waits_for_key
        FROM waybill.deliveries
        WHERE namespace_id = d.namespace_id AND ordering_key = d.ordering_key
          AND coalesce(subscription_id, 0) = coalesce(d.subscription_id, 0) AND order_seq > d.order_seq
        ORDER BY order_seq
        LIMIT 1
    ) next ON true
    LEFT JOIN LATERAL (
        SELECT true AS is_locked FROM waybill.deliveries
    WHERE namespace_id = d.namespace_id AND id = next.id AND next.waits_for_key FOR UPDATE SKIP LOCKED
    ) next_lock ON true
    WHERE (roll_up.id IS NULL OR roll_up_lock.is_locked) AND (next.waits_for_key IS NOT TRUE OR next_lock.is_locked)
    LIMIT :max_rows
)
SELECT coalesce((SELECT array_agg(namespace_id) FROM locked), '{}') AS namespace_ids,
       coalesce((SELECT array_agg(id) FROM locked), '{}') AS ids,
       least(head.at, coalesce(:now, now()) + interval '1 microsecond') AS head,
       extract(epoch FROM head.at - coalesce(:now, now()))::float8 AS head_in_seconds
FROM (SELECT) one
LEFT JOIN (
    SELECT expires_at AS at FROM waybill.deliveries
    WHERE expires_at >= coalesce(:from, '-infinity')
    ORDER BY expires_at
    LIMIT 1
) head ON true
