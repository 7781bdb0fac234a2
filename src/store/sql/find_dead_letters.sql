-- :namespace_id int, :ids bigint[]
--
-- Returns dead letters without their snapshots, ordered by id.
SELECT l.id, l.delivery_id, l.event_id, l.subscription_id, l.subscription_version, l.reason, l.detail, l.actor,
       l.created_at, l.replayed_at, l.replay_actor, l.replay_reason, l.replay_config
FROM unnest(:ids) AS wanted(id)
CROSS JOIN LATERAL (
    SELECT * FROM waybill.dead_letters WHERE namespace_id = :namespace_id AND id = wanted.id OFFSET 0
) l
ORDER BY l.id
