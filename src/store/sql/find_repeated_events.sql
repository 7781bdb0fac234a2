-- :namespace_id int, :event_ids bigint[], :origins bigint[], :keys text[]
--
-- Returns the present states of events that were published again under their idempotency keys. The last state of an
-- event that was removed is on its key. The key is read only then: it may be gone although the event is still there. An
-- event of which nothing is left has no state.
SELECT asked.event_id, coalesce(d.status, k.left_status) AS status
FROM unnest(:event_ids, :origins, :keys) AS asked(event_id, origin, key)
LEFT JOIN LATERAL (
    SELECT status FROM waybill.deliveries WHERE namespace_id = :namespace_id AND id = asked.event_id OFFSET 0
) d ON true
LEFT JOIN LATERAL (
    SELECT left_status
    FROM waybill.idempotency_keys
    WHERE d.status IS NULL AND event_id = asked.event_id
      AND namespace_id = :namespace_id AND origin = asked.origin AND key = asked.key COLLATE "C"
    OFFSET 0
) k ON true
