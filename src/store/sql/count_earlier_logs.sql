-- :namespace_id int, :event_id bigint, :below bigint, :most bigint
--
-- Returns the number of entries of an event with ids below :below, up to :most.
SELECT count(*) AS entries
FROM (
    SELECT
    FROM waybill.event_trails
    WHERE namespace_id = :namespace_id AND event_id = :event_id AND id < :below
      AND created_at >= coalesce((SELECT e.created_at - interval '1 day' FROM waybill.events e
                                    WHERE e.namespace_id = :namespace_id AND e.id = :event_id), '-infinity')
    LIMIT :most
) earlier
