-- :namespace_ids int[], :subscription_ids bigint[], :rates float8[], :wanted bigint[], :now timestamptz
--
-- Takes from the rate limiters of subscriptions what is available, at most :wanted each. `used_until` is the time up
-- to which the rate is used up. A rate that is unused for more than a second is lost. A row is locked and then found by
-- its key: if another server has just changed it, this snapshot cannot see its new version, and what is taken would
-- not be recorded. Returns how much was granted, and in how many seconds the next request is allowed.
WITH wanted AS MATERIALIZED (
    SELECT w.namespace_id, p.subscription_id, w.rate, w.most, t.now,
           greatest(p.used_until, t.now - make_interval(secs => greatest(1.0, 1.0 / w.rate))) AS used_until
    FROM unnest(:namespace_ids, :subscription_ids, :rates, :wanted) AS w(namespace_id, id, rate, most)
    CROSS JOIN (SELECT coalesce(:now, now()) AS now) t
    CROSS JOIN LATERAL (
        SELECT subscription_id, used_until FROM waybill.subscription_rates
        WHERE namespace_id = w.namespace_id AND subscription_id = w.id FOR UPDATE
    ) p
),
granted AS MATERIALIZED (
    SELECT *, least(most, greatest(0, floor(extract(epoch FROM now - used_until)::float8 * rate + 1e-6)))::bigint AS granted
    FROM wanted
),
taken AS (
    UPDATE waybill.subscription_rates p
    SET used_until = g.used_until + make_interval(secs => g.granted / g.rate)
    FROM granted g
    WHERE p.namespace_id = g.namespace_id AND p.subscription_id = g.subscription_id AND g.granted > 0
)
SELECT namespace_id, subscription_id, granted,
       greatest(0, extract(epoch FROM used_until - now)::float8 + (granted + 1) / rate) AS next_in
FROM granted
