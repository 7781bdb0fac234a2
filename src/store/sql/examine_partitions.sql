-- Returns whether the event log has the partitions of this week and of the next one, and whether the default partition
-- has rows, which belong to a week that was not prepared.
SELECT json_build_object(
    'this_week', waybill_week.this, 'has_this_week', to_regclass('waybill.' || waybill_week.this) IS NOT NULL,
    'next_week', waybill_week.next, 'has_next_week', to_regclass('waybill.' || waybill_week.next) IS NOT NULL,
    'default_has_rows', EXISTS (SELECT 1 FROM waybill.event_log_default)
)::text AS facts
FROM (
    SELECT 'event_log_' || to_char(date_trunc('week', today), 'YYYYMMDD') AS this,
           'event_log_' || to_char(date_trunc('week', today + interval '7 days'), 'YYYYMMDD') AS next
    FROM (SELECT now() AT TIME ZONE 'UTC' AS today) t
) waybill_week
