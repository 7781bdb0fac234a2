-- :namespace_id int, :origins bigint[], :keys text[]
--
-- Returns the events that were published under idempotency keys, with their present state and the place of their key in
-- :keys, from 1. The last state of an event that was removed is on its key.
SELECT asked.place, k.event_id, k.created_at, k.fingerprint, coalesce(d.status, k.left_status) AS status,
       d.updated_at, d.status IS NOT NULL AS is_present
FROM unnest(:origins, :keys) WITH ORDINALITY AS asked(origin, key, place)
CROSS JOIN LATERAL (
    SELECT event_id, created_at, fingerprint, left_status
    FROM waybill.idempotency_keys
    WHERE namespace_id = :namespace_id AND origin = asked.origin AND key = asked.key COLLATE "C"
    OFFSET 0
) k
LEFT JOIN LATERAL (
    SELECT status, updated_at FROM waybill.deliveries WHERE namespace_id = :namespace_id AND id = k.event_id OFFSET 0
) d ON true
