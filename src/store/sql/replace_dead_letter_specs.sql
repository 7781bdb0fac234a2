-- :namespace_ids int[], :ids bigint[], :old text[], :new text[]
--
-- Replaces the settings in dead letters by the same settings with headers that are encrypted again, unless they were
-- changed since they were read. Rows that are in use are skipped: whoever waits for one while it holds others could
-- be part of a deadlock. Rows are compared as in roll_up.sql.
WITH locked AS MATERIALIZED (
    SELECT t.*
    FROM unnest(:namespace_ids, :ids, :old, :new) AS t(namespace_id, id, old, new)
    CROSS JOIN LATERAL (
        SELECT FROM waybill.dead_letters
        WHERE namespace_id = t.namespace_id AND id = t.id AND subscription::text = t.old
        FOR UPDATE SKIP LOCKED
    ) l
)
UPDATE waybill.dead_letters l
SET subscription = t.new::json
FROM locked t
WHERE (l.namespace_id, l.id) >= (t.namespace_id, t.id) AND (l.namespace_id, l.id) <= (t.namespace_id, t.id)
