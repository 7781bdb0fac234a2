-- Takes the locks of ordering keys, in one fixed order, until the transaction ends. Whoever
-- publishes under a key or finishes work of one holds its lock, so "who is next" has one
-- answer, and the order of a key is the order of commits.
--
-- Keys share 1,024 locks: PostgreSQL has room for a few thousand in all, and a handful of
-- batches with a thousand keys each would use that up for everybody.
SELECT count(pg_advisory_xact_lock(1463900482, lock))
FROM (SELECT DISTINCT (hashtextextended($1 || ':' || key, 0) & 1023)::integer AS lock
      FROM unnest($2) AS key ORDER BY lock) locks
