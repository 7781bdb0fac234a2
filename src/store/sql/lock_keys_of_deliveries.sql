-- The same for the keys of these deliveries. A delivery's key never changes, so it may be
-- read before it is locked.
SELECT count(pg_advisory_xact_lock(1463900482, lock))
FROM (SELECT DISTINCT (hashtextextended(d.namespace_id || ':' || d.ordering_key, 0) & 1023)::integer AS lock
      FROM waybill.deliveries d
      WHERE d.id = ANY($1) AND d.ordering_key IS NOT NULL ORDER BY lock) locks
