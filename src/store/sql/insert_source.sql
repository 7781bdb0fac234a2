-- :namespace_id int, :id bigint, :token_hash bytea, :token text, :spec json, :is_active boolean, :now timestamptz
--
-- Stores a new source.
INSERT INTO waybill.sources (namespace_id, id, token_hash, token, spec, is_active, created_at, updated_at)
VALUES (:namespace_id, :id, :token_hash, :token, :spec, :is_active, coalesce(:now, now()), coalesce(:now, now()))
RETURNING id, version, token, spec, is_active, refused, last_refused_at, last_refusal, created_at, updated_at
