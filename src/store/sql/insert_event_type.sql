-- :namespace_id int, :name text, :description text, :schema json, :schema_digest text, :examples json, :now timestamptz
--
-- Stores a new event type. Returns nothing if there is one of this name.
INSERT INTO waybill.event_types
       (namespace_id, name, description, schema, schema_digest, examples, created_at, updated_at)
VALUES (:namespace_id, :name, :description, :schema, :schema_digest, :examples, coalesce(:now, now()),
        coalesce(:now, now()))
ON CONFLICT (namespace_id, name) DO NOTHING
RETURNING id, name, description, schema, schema_digest, examples, version, revision, created_at, updated_at
