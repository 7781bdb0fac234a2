-- :now timestamptz, :seconds double precision
--
-- Returns the day of the oldest entry in the default partition of the event log whose week ended more than :seconds
-- seconds ago, or null. The default partition is normally empty.
SELECT min(created_at AT TIME ZONE 'UTC')::date AS day
FROM waybill.event_log_default
WHERE (date_trunc('week', created_at AT TIME ZONE 'UTC') + interval '7 days') AT TIME ZONE 'UTC'
      <= coalesce(:now, now()) - make_interval(secs => :seconds)
