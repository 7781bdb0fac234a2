-- :namespace_id int, :worker_id text, :idempotency_key text
--
-- Locks a claim request until the transaction ends. Concurrent calls of the same request wait.
SELECT pg_advisory_xact_lock(1463900498, hashtext(:namespace_id || ':' || :worker_id || ':' || :idempotency_key))
