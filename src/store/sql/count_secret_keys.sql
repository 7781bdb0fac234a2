-- Returns the keys with which the secrets and the headers of subscriptions, and the secrets and tokens of sources, are
-- encrypted, each with the number of values.
-- The key of values that are not encrypted is NULL. Dead letters are not counted: there may be many.
SELECT key_id, count(*) AS values
FROM (
    SELECT CASE WHEN secret LIKE 'enc:%' THEN split_part(secret, ':', 3) END AS key_id
    FROM waybill.subscription_secrets
    UNION ALL
    SELECT CASE WHEN json_typeof(h.value) <> 'string' THEN split_part(coalesce(h.value ->> 'encrypted', ''), ':', 3) END
    FROM waybill.subscriptions s
    CROSS JOIN LATERAL json_each(CASE WHEN json_typeof(s.spec -> 'headers') = 'object' THEN s.spec -> 'headers' END) h
    WHERE s.deleted_at IS NULL
    UNION ALL
    SELECT CASE WHEN secret LIKE 'enc:%' THEN split_part(secret, ':', 3) END FROM waybill.source_secrets
    UNION ALL
    SELECT CASE WHEN token LIKE 'enc:%' THEN split_part(token, ':', 3) END FROM waybill.sources
) v
GROUP BY key_id
ORDER BY key_id
