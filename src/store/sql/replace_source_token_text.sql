-- :namespace_id int, :id bigint, :old text, :new text
--
-- Replaces the token of a source by the same token, encrypted again, unless it was changed since it was read.
UPDATE waybill.sources
SET token = :new
WHERE namespace_id = :namespace_id AND id = :id AND token = :old
