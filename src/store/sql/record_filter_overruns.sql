-- :namespace_ids int[], :subscription_ids bigint[], :events bigint[], :last_at timestamptz[], :last_event_ids bigint[]
--
-- Adds the events for which filters exceeded their budget. Rows are written in the order of their keys, which
-- prevents deadlocks.
INSERT INTO waybill.filter_overruns AS o (namespace_id, subscription_id, events, last_at, last_event_id)
SELECT t.*
FROM unnest(:namespace_ids, :subscription_ids, :events, :last_at, :last_event_ids)
     AS t(namespace_id, subscription_id, events, last_at, last_event_id)
ORDER BY namespace_id, subscription_id
ON CONFLICT (namespace_id, subscription_id) DO UPDATE SET
    events = o.events + excluded.events,
    last_at = greatest(o.last_at, excluded.last_at),
    last_event_id = greatest(o.last_event_id, excluded.last_event_id)
