DROP TABLE waybill.event_type_versions;
DROP TABLE waybill.event_types;
