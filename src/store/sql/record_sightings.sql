-- :now timestamptz, :namespace_ids int[], :worker_ids text[], :tags text[], :seconds_ago float8[]
--
-- Records when workers called last, and with which tags. Rows are written in the order of their keys, which
-- prevents deadlocks.
INSERT INTO waybill.workers AS w (namespace_id, worker_id, tags, first_seen_at, last_seen_at)
SELECT t.namespace_id, t.worker_id, coalesce(string_to_array(t.tags, ','), '{}'), seen, seen
FROM unnest(:namespace_ids, :worker_ids, :tags, :seconds_ago) AS t(namespace_id, worker_id, tags, seconds_ago)
CROSS JOIN LATERAL (SELECT coalesce(:now, now()) - make_interval(secs => t.seconds_ago) AS seen) s
ORDER BY t.namespace_id, t.worker_id
ON CONFLICT (namespace_id, worker_id) DO UPDATE SET
    last_seen_at = greatest(w.last_seen_at, excluded.last_seen_at),
    tags = CASE WHEN excluded.tags = '{}' THEN w.tags ELSE excluded.tags END
