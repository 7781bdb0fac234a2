-- :namespace_id int, :id bigint, :spec json, :is_active boolean, :now timestamptz
--
-- Changes a source and increments its version.
UPDATE waybill.sources
SET spec = :spec, is_active = :is_active, version = version + 1, updated_at = coalesce(:now, now())
WHERE namespace_id = :namespace_id AND id = :id
RETURNING id, version, token, spec, is_active, refused, last_refused_at, last_refusal, created_at, updated_at
