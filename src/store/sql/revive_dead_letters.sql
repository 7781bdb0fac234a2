-- Deliveries $2 are alive again. The dead letter of each that waited for somebody to decide is
-- done with, and the delivery remembers from which it is sent ($3), or that it is from none: a
-- plain retry must not go on with what an earlier replay said. Every delivery is locked.
WITH input AS MATERIALIZED (
    SELECT * FROM unnest($2, $3, $4, $5, $6, $7)
         AS t(delivery_id, dead_letter_id, replayed_by, config, payload, webhook_id)
),
closed AS (
    UPDATE waybill.dead_letters l
    SET replayed_at = coalesce($1, now()), replayed_by = t.replayed_by, replay_config = coalesce(t.config, 'current'),
        replay_payload = t.payload, replay_webhook_id = t.webhook_id
    FROM input t
    WHERE l.delivery_id = t.delivery_id AND l.replayed_at IS NULL
)
UPDATE waybill.deliveries d
SET replay_of = t.dead_letter_id
FROM input t
WHERE d.id = t.delivery_id AND d.replay_of IS DISTINCT FROM t.dead_letter_id
