-- :namespace_id int, :ids bigint[]
--
-- Locks dead letters, in the order of their ids, so that none is deleted before the transaction ends.
SELECT id
FROM waybill.dead_letters
WHERE namespace_id = :namespace_id AND id = ANY (:ids)
ORDER BY id
FOR UPDATE
