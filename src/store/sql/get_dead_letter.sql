-- :namespace_id int, :id bigint
--
-- Returns a dead letter with its snapshots.
SELECT id, delivery_id, event_id, subscription_id, subscription_version, reason, detail, actor, created_at,
       replayed_at, replay_actor, replay_reason, replay_config, event, subscription, attempts
FROM waybill.dead_letters
WHERE namespace_id = :namespace_id AND id = :id
