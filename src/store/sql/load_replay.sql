-- :namespace_id int, :dead_letter_id bigint
--
-- Returns how a dead letter is being replayed.
SELECT replay_config, subscription, subscription_version,
       coalesce(replay_payload, event -> 'payload') AS payload, replay_webhook_id
FROM waybill.dead_letters WHERE namespace_id = :namespace_id AND id = :dead_letter_id AND replayed_at IS NOT NULL
