-- :namespace_id int, :id bigint
--
-- Returns one subscription, active or not, in the form of load_catalogs.sql.
SELECT s.id, s.version, s.spec, coalesce(k.secrets, '{}') AS secrets, coalesce(k.expiries, '{}') AS secrets_expire_at
FROM waybill.subscriptions s
CROSS JOIN LATERAL (
    SELECT array_agg(secret ORDER BY id DESC) AS secrets, array_agg(expires_at ORDER BY id DESC) AS expiries
    FROM waybill.subscription_secrets WHERE namespace_id = s.namespace_id AND subscription_id = s.id
) k
WHERE s.namespace_id = :namespace_id AND s.id = :id AND s.deleted_at IS NULL
