-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows dead letters that are older than :seconds seconds, the oldest first. A dead letter that
-- is being replayed is kept until its push has ended. One that was changed since this statement began, as a replay
-- does, is kept as well: its locked version has another ctid than the one that was found.
WITH old AS MATERIALIZED (
    SELECT l.namespace_id, l.id, l.ctid AS found_ctid
    FROM waybill.dead_letters l
    LEFT JOIN LATERAL (
        SELECT true AS is_open FROM waybill.deliveries
        WHERE namespace_id = l.namespace_id AND id = l.delivery_id AND replay_of = l.id
          AND status IN ('PENDING', 'PROCESSING')
        OFFSET 0
    ) d ON true
    WHERE l.created_at < coalesce(:now, now()) - make_interval(secs => :seconds)
      AND d.is_open IS NULL
    ORDER BY l.created_at
    LIMIT :max_rows
),
locked AS MATERIALIZED (
    SELECT letter.locked_ctid
    FROM old
    CROSS JOIN LATERAL (
        SELECT ctid AS locked_ctid FROM waybill.dead_letters
        WHERE namespace_id = old.namespace_id AND id = old.id
        FOR UPDATE SKIP LOCKED
    ) letter
    WHERE letter.locked_ctid = old.found_ctid
)
DELETE FROM waybill.dead_letters l USING locked WHERE l.ctid = locked.locked_ctid
