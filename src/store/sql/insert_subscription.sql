-- :namespace_id int, :id bigint, :url text, :spec json, :is_active boolean, :inactive_reason text, :now timestamptz
--
-- Stores a new subscription.
INSERT INTO waybill.subscriptions (namespace_id, id, url, spec, is_active, inactive_reason, created_at, updated_at)
VALUES (:namespace_id, :id, :url, :spec, :is_active, :inactive_reason, coalesce(:now, now()), coalesce(:now, now()))
RETURNING id, version, url, spec, is_active, inactive_reason, created_at, updated_at
