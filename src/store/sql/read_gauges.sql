-- :namespace_ids int[], :queues text[], :count_cap bigint, :now timestamptz
--
-- Returns how many pushes are pending, how old the oldest of :queues is, how many breakers are open, and how many dead
-- letters have not been replayed, in all namespaces together; and the version of PostgreSQL. Queue n is :queues[n] of the namespace :namespace_ids[n]. Nothing is counted beyond :count_cap,
-- which bounds the cost of a large backlog.
SELECT (SELECT count(*)
        FROM (SELECT 1 FROM waybill.namespaces n
              CROSS JOIN LATERAL (
                  SELECT 1 FROM waybill.ready
                  WHERE namespace_id = n.id AND queue >= 's:' COLLATE "C" AND queue < 's;' COLLATE "C"
                  LIMIT :count_cap) own
              LIMIT :count_cap) claimable)
       + (SELECT count(*)
          FROM (SELECT 1 FROM waybill.deliveries
                WHERE due_at IS NOT NULL AND subscription_id IS NOT NULL
                ORDER BY due_at LIMIT :count_cap) waiting)
           AS pushes_pending,
       (SELECT extract(epoch FROM coalesce(:now, now()) - min(d.updated_at))::float8
        FROM unnest(:namespace_ids, :queues) AS q(namespace_id, queue)
        CROSS JOIN LATERAL (
            SELECT delivery_id FROM waybill.ready
            WHERE namespace_id = q.namespace_id AND queue = q.queue COLLATE "C" ORDER BY rank, seq LIMIT 1
        ) head
        CROSS JOIN LATERAL (SELECT updated_at FROM waybill.deliveries
                            WHERE namespace_id = q.namespace_id AND id = head.delivery_id OFFSET 0) d)
           AS oldest_push_seconds,
       (SELECT count(*)
        FROM (SELECT 1 FROM waybill.namespaces n
              CROSS JOIN LATERAL (
                  SELECT 1 FROM waybill.endpoints
                  WHERE namespace_id = n.id AND opened_at IS NOT NULL
                  LIMIT :count_cap) own
              LIMIT :count_cap) open)
           AS breakers_open,
       (SELECT count(*)
        FROM (SELECT 1 FROM waybill.namespaces n
              CROSS JOIN LATERAL (
                  SELECT 1 FROM waybill.dead_letters
                  WHERE namespace_id = n.id AND replayed_at IS NULL
                  LIMIT :count_cap) own
              LIMIT :count_cap) letters)
           AS dead_letters,
       current_setting('server_version') AS version
