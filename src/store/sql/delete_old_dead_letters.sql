-- :now timestamptz, :days int, :max_rows bigint
--
-- Deletes up to :max_rows dead letters that are older than :days days, the oldest first. A dead letter that
-- is being replayed is kept until its push has ended.
DELETE FROM waybill.dead_letters
WHERE (namespace_id, id) IN (
    SELECT l.namespace_id, l.id
    FROM waybill.dead_letters l
    LEFT JOIN LATERAL (
        SELECT true AS is_open FROM waybill.deliveries
        WHERE namespace_id = l.namespace_id AND id = l.delivery_id AND replay_of = l.id
          AND status IN ('PENDING', 'PROCESSING')
        OFFSET 0
    ) d ON true
    WHERE l.created_at < coalesce(:now, now()) - make_interval(hours => 24 * :days)
      AND d.is_open IS NULL
    ORDER BY l.created_at
    LIMIT :max_rows
)
