-- :namespace_id int
--
-- Returns the generation of the catalog of a namespace.
SELECT namespace_id, generation FROM waybill.subscription_catalog WHERE namespace_id = :namespace_id
