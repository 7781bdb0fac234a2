-- :namespace_id int, :ids bigint[]
--
-- Returns the titles of events. `OFFSET 0` keeps each look-up one of the primary key, whatever the statistics say.
SELECT e.id, e.title
FROM unnest(:ids) AS wanted(id)
CROSS JOIN LATERAL (SELECT id, title FROM waybill.events WHERE namespace_id = :namespace_id AND id = wanted.id OFFSET 0) e
