-- :namespace_ids int[], :keys text[]
--
-- Locks ordering keys until the transaction ends, always in the same order. Every transaction that publishes
-- under a key, or ends a delivery of it, holds the key's lock. The order of a key is therefore the order of
-- commits, and its head is unambiguous.
--
-- All keys share 1,024 locks: PostgreSQL has a few thousand locks in total, and a few batches with a thousand
-- keys each would exhaust them.
SELECT count(pg_advisory_xact_lock(1463900482, lock))
FROM (SELECT DISTINCT (hashtextextended(namespace_id || ':' || key, 0) & 1023)::integer AS lock
      FROM unnest(:namespace_ids, :keys) AS t(namespace_id, key) ORDER BY lock) locks
