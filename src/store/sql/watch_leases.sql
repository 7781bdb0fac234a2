-- :namespace_id int, :now timestamptz, :seconds float8, :delivery_ids bigint[]
--
-- Puts deliveries on the list of leases to check, :seconds from now.
INSERT INTO waybill.lease_watch (look_at, namespace_id, delivery_ids)
VALUES (coalesce(:now, now()) + make_interval(secs => :seconds), :namespace_id, :delivery_ids) RETURNING look_at
