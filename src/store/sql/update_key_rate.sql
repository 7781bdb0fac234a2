-- :namespace_id int, :id bigint, :publishes_per_second int, :publish_burst int
--
-- Sets how much may be published with a key. NULL means as much as its namespace may.
UPDATE waybill.api_keys
SET publishes_per_second = :publishes_per_second, publish_burst = :publish_burst
WHERE namespace_id = :namespace_id AND id = :id
