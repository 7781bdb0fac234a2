-- :namespace_ids int[], :ids bigint[]
--
-- Locks the ordering keys of deliveries, as lock_keys.sql does. A delivery's key never changes, so it can
-- be read before it is locked.
SELECT count(pg_advisory_xact_lock(1463900482, lock))
FROM (SELECT DISTINCT (hashtextextended(wanted.namespace_id || ':' || d.ordering_key, 0) & 1023)::integer AS lock
      FROM unnest(:namespace_ids, :ids) AS wanted(namespace_id, id)
      CROSS JOIN LATERAL (
          SELECT ordering_key FROM waybill.deliveries
          WHERE namespace_id = wanted.namespace_id AND id = wanted.id AND ordering_key IS NOT NULL
          OFFSET 0
      ) d
      ORDER BY lock) locks
