-- :now timestamptz, :seconds float8, :namespace_ids int[], :delivery_ids bigint[]
--
-- Puts deliveries on the list of leases to check, :seconds from now.
INSERT INTO waybill.lease_watch (look_at, namespace_id, delivery_ids)
SELECT coalesce(:now, now()) + make_interval(secs => :seconds), namespace_id, array_agg(delivery_id)
FROM unnest(:namespace_ids, :delivery_ids) AS t(namespace_id, delivery_id)
GROUP BY namespace_id
RETURNING look_at
