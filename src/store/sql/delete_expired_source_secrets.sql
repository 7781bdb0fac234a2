-- :namespace_id int, :source_id bigint, :now timestamptz
--
-- Deletes the expired secrets of a source.
DELETE FROM waybill.source_secrets
WHERE namespace_id = :namespace_id AND source_id = :source_id AND expires_at <= coalesce(:now, now())
