-- :namespace_id int, :source_id bigint, :id bigint, :old text, :new text
--
-- Replaces a secret of a source by the same secret, encrypted again, unless it was changed since it was read.
UPDATE waybill.source_secrets
SET secret = :new
WHERE namespace_id = :namespace_id AND source_id = :source_id AND id = :id AND secret = :old
