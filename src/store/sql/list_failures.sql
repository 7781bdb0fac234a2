-- :namespace_id int, :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Returns when each of the :max_rows failed events that were published last has failed. Those of the last :seconds seconds
-- have the time of their publication and their tags, too.
WITH failed AS MATERIALIZED (
    SELECT id, updated_at
    FROM waybill.deliveries
    WHERE namespace_id = :namespace_id AND listed_status = 'FAILED' AND subscription_id IS NULL
    ORDER BY id DESC
    LIMIT :max_rows
)
SELECT extract(epoch FROM coalesce(:now, now()) - f.updated_at)::float8 AS seconds_ago,
       extract(epoch FROM coalesce(:now, now()) - e.created_at)::float8 AS published_seconds_ago,
       e.tags
FROM failed f
LEFT JOIN LATERAL (
    SELECT created_at, tags FROM waybill.events WHERE namespace_id = :namespace_id AND id = f.id OFFSET 0
) e ON f.updated_at > coalesce(:now, now()) - make_interval(secs => :seconds)
