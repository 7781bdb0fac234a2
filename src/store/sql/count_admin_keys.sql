-- :now timestamptz
--
-- Returns the number of keys of all namespaces that may do everything and are in use.
SELECT count(*) AS count
FROM waybill.api_keys
WHERE 'admin' = ANY (scopes) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > coalesce(:now, now()))
