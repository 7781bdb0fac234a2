-- :namespace_id int, :ids bigint[]
--
-- Locks the ordering keys of deliveries, as lock_keys.sql does. A delivery's key never changes, so it can
-- be read before it is locked.
SELECT count(pg_advisory_xact_lock(1463900482, lock))
FROM (SELECT DISTINCT (hashtextextended(d.namespace_id || ':' || d.ordering_key, 0) & 1023)::integer AS lock
      FROM waybill.deliveries d
      WHERE d.namespace_id = :namespace_id AND d.id = ANY(:ids) AND d.ordering_key IS NOT NULL ORDER BY lock) locks
