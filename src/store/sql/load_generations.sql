-- Returns the generations of all catalogs of subscriptions. There is one per namespace.
SELECT namespace_id, generation FROM waybill.subscription_catalog
