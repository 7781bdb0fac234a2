-- :namespace_id int, :now timestamptz, :delivery_ids bigint[], :dead_letter_ids bigint[], :actors text[],
-- :reasons text[], :configs text[], :payloads json[], :webhook_ids text[]
--
-- Closes the open dead letter of each delivery, which has just become pending again, and stores on the
-- delivery which dead letter it replays. That is NULL for a plain retry, which must not use the settings of an
-- earlier replay. The deliveries must be locked, so nobody else
-- closes their dead letters. Deliveries are compared as in roll_up.sql.
WITH input AS MATERIALIZED (
    SELECT * FROM unnest(:delivery_ids, :dead_letter_ids, :actors, :reasons, :configs, :payloads, :webhook_ids)
         AS t(delivery_id, dead_letter_id, actor, reason, config, payload, webhook_id)
),
closed AS (
    UPDATE waybill.dead_letters l
    SET replayed_at = coalesce(:now, now()), replay_actor = t.actor, replay_reason = t.reason,
        replay_config = coalesce(t.config, 'current'), replay_payload = t.payload, replay_webhook_id = t.webhook_id
    FROM (
        SELECT input.*, open.letter_ctid
        FROM input
        CROSS JOIN LATERAL (
            SELECT ctid AS letter_ctid FROM waybill.dead_letters
            WHERE namespace_id = :namespace_id AND delivery_id = input.delivery_id AND replayed_at IS NULL
            OFFSET 0
        ) open
    ) t
    WHERE l.ctid = t.letter_ctid
)
UPDATE waybill.deliveries d
SET replay_of = t.dead_letter_id
FROM input t
WHERE (d.namespace_id, d.id) >= (:namespace_id, t.delivery_id)
  AND (d.namespace_id, d.id) <= (:namespace_id, t.delivery_id)
  AND d.replay_of IS DISTINCT FROM t.dead_letter_id
