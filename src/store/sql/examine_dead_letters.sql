-- :now timestamptz, :count_cap bigint, :max_rows bigint
--
-- Returns how many pushes became dead letters in the last hour, how many of them wait for somebody, counted up to
-- :count_cap, and the subscriptions that have most of them.
WITH recent AS MATERIALIZED (
    SELECT namespace_id, subscription_id, replayed_at
    FROM waybill.dead_letters
    WHERE created_at > coalesce(:now, now()) - interval '1 hour'
    ORDER BY created_at DESC
    LIMIT :count_cap
)
SELECT json_build_object(
    'last_hour', (SELECT count(*) FROM recent),
    'not_replayed', (SELECT count(*) FROM recent WHERE replayed_at IS NULL),
    'subscriptions', (SELECT coalesce(json_agg(json_build_object(
                         'namespace', n.name, 'subscription_id', s.subscription_id, 'dead_letters', s.dead_letters
                      ) ORDER BY s.dead_letters DESC, s.subscription_id), '[]')
                      FROM (SELECT namespace_id, subscription_id, count(*) AS dead_letters FROM recent
                            WHERE replayed_at IS NULL
                            GROUP BY namespace_id, subscription_id
                            ORDER BY count(*) DESC, subscription_id LIMIT :max_rows) s
                      JOIN waybill.namespaces n ON n.id = s.namespace_id)
)::text AS facts
