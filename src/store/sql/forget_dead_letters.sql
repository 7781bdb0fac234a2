-- Forgets up to $3 dead letters that are more than $2 days old, the oldest first. One from which a
-- push is just being sent is needed until that is over.
DELETE FROM waybill.dead_letters
WHERE id IN (
    SELECT l.id
    FROM waybill.dead_letters l
    WHERE l.created_at < coalesce($1, now()) - make_interval(days => $2)
      AND NOT EXISTS (
          SELECT 1 FROM waybill.deliveries d
          WHERE d.id = l.delivery_id AND d.replay_of = l.id AND d.status IN ('PENDING', 'PROCESSING'))
    ORDER BY l.created_at
    LIMIT $3
)
