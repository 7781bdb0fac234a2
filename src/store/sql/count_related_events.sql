-- :namespace_id int, :event_id bigint, :correlation_id text, :ordering_key text, :most bigint
--
-- Returns how many events have the correlation id, how many unfinished events come before this one in its ordering key,
-- and the first of these, which all others wait for. Counts go up to :most. Without a correlation id or an ordering key,
-- and for a finished event, they are 0.
SELECT
    (SELECT count(*)
     FROM (SELECT FROM waybill.events
           WHERE namespace_id = :namespace_id AND correlation_id = :correlation_id
           LIMIT :most) correlated) AS correlated,
    (SELECT count(*)
     FROM (SELECT FROM waybill.deliveries
           WHERE namespace_id = :namespace_id AND ordering_key = :ordering_key AND coalesce(subscription_id, 0) = 0
             AND order_seq IS NOT NULL AND order_seq < own.order_seq
           LIMIT :most) before) AS ahead,
    (SELECT d.event_id
     FROM waybill.deliveries d
     WHERE d.namespace_id = :namespace_id AND d.ordering_key = :ordering_key AND coalesce(d.subscription_id, 0) = 0
       AND d.order_seq IS NOT NULL AND d.order_seq < own.order_seq
     ORDER BY d.order_seq
     LIMIT 1) AS first_ahead
FROM (
    SELECT (SELECT order_seq FROM waybill.deliveries WHERE namespace_id = :namespace_id AND id = :event_id OFFSET 0)
        AS order_seq
) own
