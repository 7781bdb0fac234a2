-- :namespace_id int, :now timestamptz, :after text, :descending boolean, :max_rows bigint, :count_cap bigint,
-- :system_prefix text
--
-- Returns a page of the types that are declared, or that events have, in the order of their names, without those of
-- the server's own events. Counts their events of the last 24 hours, up to :count_cap + 1.
--
-- PostgreSQL has no skip scan from one distinct value of an index to the next. A recursive query replaces it, and skips the
-- server's own types as well. Its first row is where the page begins, and is no type of it. `last` is behind every
-- name, because it is longer. Ids are almost in the order of times: of a sample of events, the last one before the 24
-- hours tells where they begin.
WITH RECURSIVE ends AS MATERIALIZED (
    SELECT last, (:system_prefix || last) COLLATE "C" AS last_system
    FROM (SELECT repeat(chr(1114111), 256) COLLATE "C" AS last) l
),
begin AS MATERIALIZED (
    SELECT coalesce((SELECT id FROM waybill.events
                     WHERE namespace_id = :namespace_id AND id % 64 = 0
                       AND created_at < coalesce(:now, now()) - interval '24 hours'
                     ORDER BY created_at DESC, id DESC LIMIT 1), 0) AS id
),
names AS (
    SELECT coalesce(:after, CASE WHEN :descending THEN (SELECT last FROM ends) ELSE '' END) COLLATE "C" AS name
    UNION ALL
    SELECT CASE
        WHEN :descending THEN coalesce(
           (SELECT e.event_type FROM waybill.events e
            WHERE e.namespace_id = :namespace_id AND e.event_type < n.name AND e.event_type > (SELECT last_system FROM ends)
            ORDER BY e.event_type DESC LIMIT 1),
           (SELECT e.event_type FROM waybill.events e
            WHERE e.namespace_id = :namespace_id AND e.event_type < least(n.name, :system_prefix COLLATE "C")
            ORDER BY e.event_type DESC LIMIT 1))
        ELSE coalesce(
           (SELECT e.event_type FROM waybill.events e
            WHERE e.namespace_id = :namespace_id AND e.event_type > n.name AND e.event_type < :system_prefix COLLATE "C"
            ORDER BY e.event_type LIMIT 1),
           (SELECT e.event_type FROM waybill.events e
            WHERE e.namespace_id = :namespace_id AND e.event_type > greatest(n.name, (SELECT last_system FROM ends))
            ORDER BY e.event_type LIMIT 1))
        END
    FROM names n WHERE n.name IS NOT NULL
),
seen AS (
    SELECT name FROM names WHERE name IS NOT NULL OFFSET 1 LIMIT :max_rows
),
declared AS (
    SELECT name FROM waybill.event_types
    WHERE namespace_id = :namespace_id
      AND (:after IS NULL OR CASE WHEN :descending THEN name < :after COLLATE "C" ELSE name > :after COLLATE "C" END)
    ORDER BY CASE WHEN NOT :descending THEN name END, name DESC
    LIMIT :max_rows
),
page AS (
    SELECT name FROM (SELECT name FROM seen UNION SELECT name FROM declared) u
    ORDER BY CASE WHEN NOT :descending THEN name END, name DESC
    LIMIT :max_rows
)
SELECT page.name, t.description, t.version, t.schema_digest IS NOT NULL AS has_schema, t.created_at, t.updated_at,
       counted.events, latest.created_at AS last_event_at
FROM page
LEFT JOIN LATERAL (
    SELECT description, version, schema_digest, created_at, updated_at
    FROM waybill.event_types WHERE namespace_id = :namespace_id AND name = page.name
) t ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS events
    FROM (
        SELECT 1 FROM waybill.events e
        WHERE e.namespace_id = :namespace_id AND e.event_type = page.name AND e.id > (SELECT id FROM begin)
        LIMIT :count_cap + 1
    ) capped
) counted
LEFT JOIN LATERAL (
    SELECT e.created_at FROM waybill.events e
    WHERE e.namespace_id = :namespace_id AND e.event_type = page.name
    ORDER BY e.id DESC LIMIT 1
) latest ON true
ORDER BY CASE WHEN NOT :descending THEN page.name END, page.name DESC
