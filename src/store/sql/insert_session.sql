-- :namespace_id int, :now timestamptz, :key_id bigint, :hash bytea, :prefix text, :seconds double precision,
-- :until timestamptz
--
-- Gives a key a session, which ends after :seconds, or at :until if that is sooner. Returns when it ends.
INSERT INTO waybill.api_key_secrets (hash, namespace_id, key_id, prefix, created_at, expires_at, is_session)
SELECT :hash, :namespace_id, :key_id, :prefix, t.now, least(t.now + make_interval(secs => :seconds), :until), true
FROM (SELECT coalesce(:now, now()) AS now) t
RETURNING expires_at
