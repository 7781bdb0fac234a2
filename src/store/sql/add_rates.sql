-- :subscription_ids bigint[]
--
-- Adds the rate limiters of subscriptions that have none yet.
INSERT INTO waybill.subscription_paces (subscription_id, used_until)
SELECT id, '-infinity' FROM unnest(:subscription_ids) AS id
ON CONFLICT DO NOTHING
