-- Takes the locks of ordering keys, in one fixed order, until the transaction ends. Whoever
-- publishes under a key or finishes work of one holds its lock, so "who is next" has one
-- answer, and the order of a key is the order of commits.
SELECT count(pg_advisory_xact_lock(lock))
FROM (SELECT DISTINCT hashtextextended('waybill.key:' || $1 || ':' || key, 0) AS lock
      FROM unnest($2) AS key ORDER BY lock) locks
