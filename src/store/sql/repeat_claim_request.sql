-- :namespace_id int, :worker_id text, :request_id text
--
-- Counts one more call of a claim request, and returns what the first one was given.
UPDATE waybill.claim_requests SET asks = asks + 1
WHERE namespace_id = :namespace_id AND worker_id = :worker_id AND request_id = :request_id
RETURNING delivery_ids, lease_ids, asks
