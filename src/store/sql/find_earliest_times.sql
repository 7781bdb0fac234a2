-- Returns the earliest times that deliveries wait for, each from the beginning of its index.
SELECT (SELECT due_at FROM waybill.deliveries WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1),
       (SELECT expires_at FROM waybill.deliveries WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1),
       (SELECT look_at FROM waybill.lease_watch ORDER BY look_at, id LIMIT 1)
