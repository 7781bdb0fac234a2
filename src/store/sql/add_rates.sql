-- :namespace_ids int[], :subscription_ids bigint[]
--
-- Adds the rate limiters of subscriptions that have none yet.
INSERT INTO waybill.subscription_rates (namespace_id, subscription_id, used_until)
SELECT namespace_id, id, '-infinity' FROM unnest(:namespace_ids, :subscription_ids) AS t(namespace_id, id)
ON CONFLICT DO NOTHING
