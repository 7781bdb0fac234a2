-- :namespace_id int, :worker_id text, :idempotency_key text
--
-- Counts a repeated call of a claim request, and returns the claims that it received before.
UPDATE waybill.claim_requests SET asks = asks + 1
WHERE namespace_id = :namespace_id AND worker_id = :worker_id AND idempotency_key = :idempotency_key
RETURNING delivery_ids, lease_ids, asks
