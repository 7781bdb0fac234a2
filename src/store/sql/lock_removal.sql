-- :namespace_id int
--
-- Keeps others from removing events of the namespace, or restoring them, until the transaction ends. A step of a
-- removal is waited for; it is short.
SELECT pg_advisory_xact_lock(1463900483, :namespace_id)
