-- :namespace_id int, :event_id bigint, :lease_id bigint
--
-- Returns how a claim of an event was settled.
SELECT action, worker_id
FROM waybill.event_trails
WHERE namespace_id = :namespace_id AND event_id = :event_id AND delivery_id IS NULL AND lease_id = :lease_id
  AND action IN ('COMPLETED', 'FAILED', 'RELEASED') AND worker_id IS NOT NULL
  -- Partitions more than a day older than the event are not searched. The day of margin is for a database whose
  -- clock was set back.
  AND created_at >= coalesce((SELECT e.created_at - interval '1 day' FROM waybill.events e
                                WHERE e.namespace_id = :namespace_id AND e.id = :event_id), '-infinity')
ORDER BY id
LIMIT 1
