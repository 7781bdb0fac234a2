-- :now timestamptz, :max_rows bigint, :from timestamptz
--
-- Locks deliveries that have become due. That ends no delivery, so no other row must be locked.
-- Rows are read off the index from :from on, the most overdue first, until :max_rows of them are locked or 20 times as
-- many have been read: each skipped row costs a look-up, and may cost a row lock. `overdue.rs` explains the locks.
-- The condition is checked again on the locked version, as `(…) IS TRUE`, which no index serves, so that the row is
-- always looked up by its id.
--
-- Also returns the earliest due_at of all, locked or not. It is at most one microsecond after :now: another server may store an
-- earlier one than this scan has seen, but only one in the future.
WITH locked AS MATERIALIZED (
    SELECT d.namespace_id, d.id
    FROM (
        SELECT namespace_id, id FROM waybill.deliveries
        WHERE due_at >= coalesce(:from, '-infinity') AND due_at <= coalesce(:now, now())
        ORDER BY due_at
        LIMIT :max_rows * 20
    ) c
    CROSS JOIN LATERAL (
        SELECT id, event_id, subscription_id, namespace_id, ordering_key, order_seq, rescue_count
        FROM waybill.deliveries
        WHERE namespace_id = c.namespace_id AND id = c.id AND (due_at <= coalesce(:now, now())) IS TRUE
          AND (ordering_key IS NULL OR pg_try_advisory_xact_lock(
                   1463900482, (hashtextextended(namespace_id || ':' || ordering_key, 0) & 1023)::integer))
        FOR UPDATE SKIP LOCKED
    ) d
    LIMIT :max_rows
)
SELECT coalesce((SELECT array_agg(namespace_id) FROM locked), '{}') AS namespace_ids,
       coalesce((SELECT array_agg(id) FROM locked), '{}') AS ids,
       least(head.at, coalesce(:now, now()) + interval '1 microsecond') AS head,
       extract(epoch FROM head.at - coalesce(:now, now()))::float8 AS head_in_seconds
FROM (SELECT) one
LEFT JOIN (
    SELECT due_at AS at FROM waybill.deliveries
    WHERE due_at >= coalesce(:from, '-infinity')
    ORDER BY due_at
    LIMIT 1
) head ON true
