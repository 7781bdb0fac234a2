-- :namespace_id int, :id bigint, :url text, :spec json, :is_active boolean, :inactive_reason text, :now timestamptz
--
-- Changes a subscription and increments its version.
UPDATE waybill.subscriptions
SET url = :url, spec = :spec, is_active = :is_active, inactive_reason = :inactive_reason,
    version = version + 1, updated_at = coalesce(:now, now())
WHERE namespace_id = :namespace_id AND id = :id
RETURNING id, version, url, spec, is_active, inactive_reason, created_at, updated_at
