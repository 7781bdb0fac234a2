-- :namespace_id int, :event_type text, :max_rows bigint, :max_bytes bigint
--
-- Returns the latest events of a type with their payloads, the latest first: at most :max_rows, and no more once there are
-- :max_bytes of payloads. The size of a payload is known if it is over 4 KiB.
WITH latest AS MATERIALIZED (
    SELECT id, coalesce(payload_bytes, 4096) AS bytes
    FROM waybill.events
    WHERE namespace_id = :namespace_id AND event_type = :event_type
    ORDER BY id DESC
    LIMIT :max_rows
),
summed AS (
    SELECT id, sum(bytes) OVER (ORDER BY id DESC) - bytes AS bytes_before FROM latest
)
SELECT e.id, e.payload
FROM summed s
CROSS JOIN LATERAL (
    SELECT id, payload FROM waybill.events WHERE namespace_id = :namespace_id AND id = s.id OFFSET 0
) e
WHERE s.bytes_before < :max_bytes
ORDER BY e.id DESC
