-- :hash bytea
--
-- Ends a session. Call it after renew_key_generation.sql: servers drop it from their memory when they see the generation.
DELETE FROM waybill.api_key_secrets WHERE hash = :hash AND is_session
