-- :namespace_ids int[], :event_ids bigint[], :lease_ids bigint[], :actions text[], :codes text[], :worker_ids text[],
-- :actors text[], :calls bigint[], :first_times timestamptz[], :last_times timestamptz[], :max_per_event bigint
--
-- Records settlements that were refused. Those of an event that has :max_per_event rows are only counted, if they are
-- known. Servers that write at the same time may add some more. Rows are written in the order of their keys, which
-- prevents deadlocks.
INSERT INTO waybill.refused_settlements AS r
       (namespace_id, event_id, lease_id, action, code, worker_id, actor, calls, first_at, last_at)
SELECT t.namespace_id, t.event_id, t.lease_id, t.action, t.code, t.worker_id, t.actor, t.calls, t.first_at, t.last_at
FROM (
    SELECT *, row_number() OVER (PARTITION BY namespace_id, event_id ORDER BY first_at) AS place
    FROM unnest(:namespace_ids, :event_ids, :lease_ids, :actions, :codes, :worker_ids, :actors, :calls, :first_times,
                :last_times)
         AS t(namespace_id, event_id, lease_id, action, code, worker_id, actor, calls, first_at, last_at)
) t
CROSS JOIN LATERAL (
    SELECT count(*) AS rows
    FROM (
        SELECT FROM waybill.refused_settlements
        WHERE namespace_id = t.namespace_id AND event_id = t.event_id
        LIMIT :max_per_event
    ) first_rows
) present
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM waybill.refused_settlements
        WHERE namespace_id = t.namespace_id AND event_id = t.event_id AND lease_id = t.lease_id
          AND action = t.action COLLATE "C" AND code = t.code COLLATE "C" AND worker_id = t.worker_id COLLATE "C"
    ) AS is_known
) known
WHERE known.is_known OR present.rows + t.place <= :max_per_event
ORDER BY t.namespace_id, t.event_id, t.lease_id, t.action COLLATE "C", t.code COLLATE "C", t.worker_id COLLATE "C"
ON CONFLICT (namespace_id, event_id, lease_id, action, code, worker_id) DO UPDATE
SET calls = r.calls + excluded.calls,
    actor = excluded.actor,
    first_at = least(r.first_at, excluded.first_at),
    last_at = greatest(r.last_at, excluded.last_at)
