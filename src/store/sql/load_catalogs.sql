-- :namespace_ids int[]
--
-- Returns all active subscriptions of namespaces with their secrets, the current secret first, their event types, and the
-- generation of the catalog. Returns one row without a subscription or an event type for a namespace that has none. One
-- statement has one snapshot, so the generation belongs to these rows. Of event types it returns what identifies the
-- schema, and not the schema: it is loaded when the first event of the type is published.
SELECT c.namespace_id, c.generation, n.is_strict, n.limits, r.*
FROM unnest(:namespace_ids) AS wanted(id)
CROSS JOIN LATERAL (SELECT * FROM waybill.subscription_catalog WHERE namespace_id = wanted.id OFFSET 0) c
CROSS JOIN LATERAL (
    SELECT coalesce((settings ->> 'strict_event_types')::boolean, false) AS is_strict, settings -> 'limits' AS limits
    FROM waybill.namespaces WHERE id = c.namespace_id
    OFFSET 0
) n
LEFT JOIN LATERAL (
    (SELECT s.id, s.version, s.spec, coalesce(k.secrets, '{}') AS secrets,
            coalesce(k.expiries, '{}') AS secrets_expire_at, NULL::text AS event_type, NULL::text AS schema_digest
     FROM waybill.subscriptions s
     CROSS JOIN LATERAL (
         SELECT array_agg(secret ORDER BY id DESC) AS secrets, array_agg(expires_at ORDER BY id DESC) AS expiries
         FROM waybill.subscription_secrets WHERE namespace_id = s.namespace_id AND subscription_id = s.id
     ) k
     WHERE s.namespace_id = c.namespace_id AND s.is_active
     ORDER BY s.id)
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, t.name, t.schema_digest
    FROM waybill.event_types t
    WHERE t.namespace_id = c.namespace_id
) r ON true
