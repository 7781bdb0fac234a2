-- :namespace_id int, :ids bigint[], :max_bytes bigint
--
-- Returns the payloads of events in the order of :ids, and no more once there are :max_bytes of large ones. The size of
-- a payload is known if it is over 4 KiB. A payload that is not returned is not read: it lies outside its row.
SELECT id, payload
FROM (
    SELECT w.id, w.n, e.payload,
           sum(coalesce(e.payload_bytes, 0)) OVER (ORDER BY w.n) - coalesce(e.payload_bytes, 0) AS bytes_before
    FROM unnest(:ids) WITH ORDINALITY AS w(id, n)
    LEFT JOIN LATERAL (
        SELECT payload, payload_bytes FROM waybill.events WHERE namespace_id = :namespace_id AND id = w.id OFFSET 0
    ) e ON true
) summed
WHERE bytes_before < :max_bytes
ORDER BY n
