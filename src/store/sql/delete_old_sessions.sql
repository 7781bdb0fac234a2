-- :namespace_id int, :now timestamptz, :key_id bigint, :keep bigint
--
-- Deletes the sessions of a key that have ended, and of the others all but the :keep newest. Returns the number of these.
WITH sessions AS (
    SELECT hash, is_good, row_number() OVER (PARTITION BY is_good ORDER BY created_at DESC, hash) AS place
    FROM waybill.api_key_secrets
    CROSS JOIN LATERAL (SELECT expires_at > coalesce(:now, now()) AS is_good) g
    WHERE namespace_id = :namespace_id AND key_id = :key_id AND is_session
),
gone AS (
    DELETE FROM waybill.api_key_secrets
    WHERE hash = ANY (ARRAY(SELECT hash FROM sessions WHERE NOT is_good OR place > :keep))
)
SELECT count(*) AS count FROM sessions WHERE is_good AND place > :keep
