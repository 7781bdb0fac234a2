-- :namespace_id int, :skipped bigint
--
-- Returns an entry of the samples of a namespace's log, if there are more than `:skipped`. In no particular order, so
-- that a large namespace is recognized in the first partition.
SELECT id
FROM waybill.event_log
WHERE namespace_id = :namespace_id AND id % 64 = 0
OFFSET :skipped
LIMIT 1
