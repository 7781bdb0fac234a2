-- :namespace_id int, :worker_id text, :request_id text
--
-- Lets one call of a claim request at a time go on, until its transaction ends.
SELECT pg_advisory_xact_lock(1463900498, hashtext(:namespace_id || ':' || :worker_id || ':' || :request_id))
