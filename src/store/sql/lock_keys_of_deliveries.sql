-- The same for the keys of these deliveries. A delivery's key never changes, so it may be
-- read before it is locked.
SELECT count(pg_advisory_xact_lock(lock))
FROM (SELECT DISTINCT hashtextextended('waybill.key:' || d.namespace_id || ':' || d.ordering_key, 0) AS lock
      FROM waybill.deliveries d
      WHERE d.id = ANY($1) AND d.ordering_key IS NOT NULL ORDER BY lock) locks
