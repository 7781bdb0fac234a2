-- :namespace_id int, :subscription_id bigint, :now timestamptz
--
-- Deletes the expired secrets of a subscription.
DELETE FROM waybill.subscription_secrets
WHERE namespace_id = :namespace_id AND subscription_id = :subscription_id AND expires_at <= coalesce(:now, now())
