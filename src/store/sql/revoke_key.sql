-- :namespace_id int, :now timestamptz, :id bigint
--
-- Revokes a key. One that is revoked already keeps its time. Returns whether there is such a key.
UPDATE waybill.api_keys
SET revoked_at = coalesce(revoked_at, :now, now())
WHERE namespace_id = :namespace_id AND id = :id
