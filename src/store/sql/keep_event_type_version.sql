-- :namespace_id int, :name text, :version int, :schema json, :now timestamptz, :max_versions int
--
-- Keeps a version of a schema, and removes those before the latest :max_versions.
WITH removed AS (
    DELETE FROM waybill.event_type_versions
    WHERE namespace_id = :namespace_id AND name = :name AND version <= :version - :max_versions
)
INSERT INTO waybill.event_type_versions (namespace_id, name, version, schema, created_at)
VALUES (:namespace_id, :name, :version, :schema, coalesce(:now, now()))
