-- :namespace_id int
--
-- Returns all active subscriptions with their secrets, the current secret first, and the generation of the
-- catalog. Returns one row without a subscription if there are none. One statement has one snapshot, so the
-- generation belongs to these rows.
SELECT c.generation, r.*
FROM waybill.subscription_catalog c
LEFT JOIN LATERAL (
    SELECT s.id, s.version, s.spec, coalesce(k.secrets, '{}') AS secrets, coalesce(k.expiries, '{}') AS secrets_expire_at
    FROM waybill.subscriptions s
    CROSS JOIN LATERAL (
        SELECT array_agg(secret ORDER BY id DESC) AS secrets, array_agg(expires_at ORDER BY id DESC) AS expiries
        FROM waybill.subscription_secrets WHERE namespace_id = s.namespace_id AND subscription_id = s.id
    ) k
    WHERE s.namespace_id = :namespace_id AND s.is_active
    ORDER BY s.id
) r ON true
WHERE c.namespace_id = :namespace_id
