-- :namespace_id int, :id bigint, :now timestamptz
--
-- Marks a subscription as deleted. Its open pushes are cancelled later, in small steps.
UPDATE waybill.subscriptions SET is_active = false, inactive_reason = NULL, version = version + 1,
deleted_at = coalesce(:now, now()), updated_at = coalesce(:now, now()) WHERE namespace_id = :namespace_id AND id = :id
