-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows dead letters that are older than :seconds seconds, the oldest first. A dead letter that
-- is being replayed is kept until its push has ended.
DELETE FROM waybill.dead_letters
WHERE (namespace_id, id) IN (
    SELECT l.namespace_id, l.id
    FROM waybill.dead_letters l
    WHERE l.created_at < coalesce(:now, now()) - make_interval(secs => :seconds)
      AND NOT EXISTS (
          SELECT 1 FROM waybill.deliveries d
          WHERE d.namespace_id = l.namespace_id AND d.id = l.delivery_id AND d.replay_of = l.id AND d.status IN ('PENDING', 'PROCESSING'))
    ORDER BY l.created_at
    LIMIT :max_rows
)
