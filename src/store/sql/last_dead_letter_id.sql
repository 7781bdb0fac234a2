-- :namespace_id int
--
-- Returns the highest id of all dead letters, or 0.
SELECT coalesce(max(id), 0) AS id FROM waybill.dead_letters WHERE namespace_id = :namespace_id
