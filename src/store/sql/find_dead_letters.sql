-- :namespace_id int, :ids bigint[]
--
-- Returns dead letters without their snapshots, ordered by id.
SELECT id, delivery_id, event_id, subscription_id, subscription_version, reason, detail, actor, created_at,
       replayed_at, replay_actor, replay_reason, replay_config
FROM waybill.dead_letters
WHERE namespace_id = :namespace_id AND id = ANY(:ids)
ORDER BY id
