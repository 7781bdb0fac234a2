-- :now timestamptz, :namespace_ids int[], :delivery_ids bigint[], :dead_letter_ids bigint[], :actors text[],
-- :reasons text[], :configs text[], :payloads json[], :webhook_ids text[]
--
-- Closes the open dead letter of each delivery, which has just become pending again, and stores on the
-- delivery which dead letter it replays. That is NULL for a plain retry, which must not use the settings of an
-- earlier replay. The deliveries must be locked, so nobody else closes their dead letters. But somebody may encrypt
-- the headers of one again meanwhile, so they are found by key and not by ctid: a row that was just changed has a new
-- version. Rows are compared as in roll_up.sql.
WITH input AS MATERIALIZED (
    SELECT * FROM unnest(:namespace_ids, :delivery_ids, :dead_letter_ids, :actors, :reasons, :configs, :payloads, :webhook_ids)
         AS t(namespace_id, delivery_id, dead_letter_id, actor, reason, config, payload, webhook_id)
),
closed AS (
    UPDATE waybill.dead_letters l
    SET replayed_at = coalesce(:now, now()), replay_actor = t.actor, replay_reason = t.reason,
        replay_config = coalesce(t.config, 'current'), replay_payload = t.payload, replay_webhook_id = t.webhook_id
    FROM (
        SELECT input.*, open.letter_id
        FROM input
        CROSS JOIN LATERAL (
            SELECT id AS letter_id FROM waybill.dead_letters
            WHERE namespace_id = input.namespace_id AND delivery_id = input.delivery_id AND replayed_at IS NULL
            OFFSET 0
        ) open
    ) t
    WHERE (l.namespace_id, l.id) >= (t.namespace_id, t.letter_id)
      AND (l.namespace_id, l.id) <= (t.namespace_id, t.letter_id)
)
UPDATE waybill.deliveries d
SET replay_of = t.dead_letter_id
FROM input t
WHERE (d.namespace_id, d.id) >= (t.namespace_id, t.delivery_id)
  AND (d.namespace_id, d.id) <= (t.namespace_id, t.delivery_id)
  AND d.replay_of IS DISTINCT FROM t.dead_letter_id
