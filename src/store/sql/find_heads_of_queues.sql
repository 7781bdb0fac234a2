-- :namespace_ids int[], :queues text[]
--
-- Returns the position of the first entry of each of :queues that has one.
SELECT q.namespace_id, q.queue, head.rank, head.seq FROM unnest(:namespace_ids, :queues) AS q(namespace_id, queue) CROSS JOIN LATERAL
(SELECT rank, seq FROM waybill.ready WHERE namespace_id = q.namespace_id AND queue = q.queue COLLATE "C"
 ORDER BY rank, seq LIMIT 1) head
