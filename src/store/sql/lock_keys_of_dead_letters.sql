-- :namespace_id int, :ids bigint[]
--
-- Locks the ordering keys of the pushes of dead letters, as lock_keys.sql does, and returns how many of those
-- that are open have no delivery any longer.
WITH letters AS MATERIALIZED (
    SELECT l.ordering_key, l.replayed_at IS NULL AND d.id IS NULL AS is_left
    FROM unnest(:ids) AS wanted(id)
    CROSS JOIN LATERAL (
        SELECT delivery_id, ordering_key, replayed_at
        FROM waybill.dead_letters WHERE namespace_id = :namespace_id AND id = wanted.id OFFSET 0
    ) l
    LEFT JOIN LATERAL (
        SELECT id FROM waybill.deliveries WHERE namespace_id = :namespace_id AND id = l.delivery_id OFFSET 0
    ) d ON true
),
locked AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(1463900482, lock)
    FROM (SELECT DISTINCT (hashtextextended(:namespace_id || ':' || ordering_key, 0) & 1023)::integer AS lock
          FROM letters WHERE ordering_key IS NOT NULL ORDER BY lock) locks
)
SELECT count(*) FILTER (WHERE is_left) AS left_over, (SELECT count(*) FROM locked) AS locks FROM letters
