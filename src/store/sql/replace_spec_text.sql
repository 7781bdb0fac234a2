-- :namespace_id int, :id bigint, :old text, :new text
--
-- Replaces the settings of a subscription by the same settings with headers that are encrypted again, unless they were
-- changed since they were read. The version stays: for the subscriber nothing has changed.
UPDATE waybill.subscriptions
SET spec = :new::json
WHERE namespace_id = :namespace_id AND id = :id AND spec::text = :old
