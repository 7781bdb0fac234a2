-- :namespace_id int, :name text, :description text, :schema json, :schema_digest text, :examples json, :now timestamptz
--
-- Changes an event type, whose row is locked. A changed schema is another version.
UPDATE waybill.event_types
SET description = :description, schema = :schema, schema_digest = :schema_digest, examples = :examples,
    version = version + CASE WHEN schema_digest IS DISTINCT FROM :schema_digest THEN 1 ELSE 0 END,
    revision = revision + 1, updated_at = coalesce(:now, now())
WHERE namespace_id = :namespace_id AND name = :name
RETURNING id, name, description, schema, schema_digest, examples, version, revision, created_at, updated_at
