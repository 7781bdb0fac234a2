-- :namespace_id int
--
-- Gives the catalog of subscriptions a new generation.
UPDATE waybill.subscription_catalog
SET generation = waybill.random_generation()
WHERE namespace_id = :namespace_id
