-- :namespace_ids int[], :queues text[], :from_ranks smallint[], :from_seqs bigint[]
--
-- Returns those of :queues that have an entry at or behind the position given for each.
SELECT q.namespace_id, q.queue FROM unnest(:namespace_ids, :queues, :from_ranks, :from_seqs) AS q(namespace_id, queue, from_rank, from_seq) CROSS JOIN LATERAL
(SELECT 1 FROM waybill.ready r WHERE r.namespace_id = q.namespace_id AND r.queue = q.queue COLLATE "C"
 AND (r.rank, r.seq) >= (q.from_rank, q.from_seq) ORDER BY r.rank, r.seq LIMIT 1) any_row
