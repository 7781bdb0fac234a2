-- :namespace_id int, :worker_id text, :idempotency_key text, :delivery_ids bigint[], :lease_ids bigint[],
-- :now timestamptz
--
-- Stores the claims that a request received, for its repetitions.
INSERT INTO waybill.claim_requests (namespace_id, worker_id, idempotency_key, delivery_ids, lease_ids, claimed_at)
VALUES (:namespace_id, :worker_id, :idempotency_key, :delivery_ids, :lease_ids, coalesce(:now, now()))
ON CONFLICT (namespace_id, worker_id, idempotency_key) DO UPDATE
SET delivery_ids = excluded.delivery_ids, lease_ids = excluded.lease_ids, claimed_at = excluded.claimed_at
