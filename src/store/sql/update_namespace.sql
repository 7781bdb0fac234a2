-- :id int, :settings json
--
-- Changes the settings of a namespace. Its row is locked.
UPDATE waybill.namespaces SET settings = :settings WHERE id = :id
RETURNING id, name, settings, created_at
