-- :namespace_id int, :subscription_id bigint, :id bigint, :old text, :new text
--
-- Replaces a secret of a subscription by the same secret, encrypted again, unless it was changed since it was read.
UPDATE waybill.subscription_secrets
SET secret = :new
WHERE namespace_id = :namespace_id AND subscription_id = :subscription_id AND id = :id AND secret = :old
