-- :namespace_id int, :queues text[]
--
-- Returns the position of the first entry of each of :queues that has one.
SELECT q.queue, head.rank, head.seq FROM unnest(:queues) AS q(queue) CROSS JOIN LATERAL
(SELECT rank, seq FROM waybill.ready WHERE namespace_id = :namespace_id AND queue = q.queue COLLATE "C"
 ORDER BY rank, seq LIMIT 1) head
