DROP TABLE waybill.stats_hours;
DROP TABLE waybill.stats_minutes;
