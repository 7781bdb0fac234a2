-- :namespace_id int, :keys text[]
--
-- Locks ordering keys until the transaction ends, always in the same order. Whoever publishes under a key,
-- or ends work under it, holds its lock: so the order of a key is the order of commits, and there is one
-- answer to who is next.
--
-- All keys share 1,024 locks: PostgreSQL has room for a few thousand in all, and some batches with a
-- thousand keys each would use them up.
SELECT count(pg_advisory_xact_lock(1463900482, lock))
FROM (SELECT DISTINCT (hashtextextended(:namespace_id || ':' || key, 0) & 1023)::integer AS lock
      FROM unnest(:keys) AS key ORDER BY lock) locks
