-- :namespace_id int, :event_id bigint, :worker_id text
--
-- Returns the lease of a worker's latest claim of an event.
SELECT lease_id AS id
FROM waybill.event_trails
WHERE namespace_id = :namespace_id AND event_id = :event_id AND delivery_id IS NULL AND action = 'PICKED'
  AND worker_id = :worker_id
  -- Partitions more than a day older than the event are not searched. The day of margin is for a database whose
  -- clock was set back.
  AND created_at >= coalesce((SELECT e.created_at - interval '1 day' FROM waybill.events e
                                WHERE e.namespace_id = :namespace_id AND e.id = :event_id), '-infinity')
ORDER BY event_trails.id DESC
LIMIT 1
