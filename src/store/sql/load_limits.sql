-- Returns the namespaces with limits. One more row, without a namespace, tells that a key has a limit.
SELECT id AS namespace_id, settings -> 'limits' AS limits
FROM waybill.namespaces
WHERE (settings -> 'limits') IS NOT NULL
UNION ALL
SELECT NULL, NULL
WHERE EXISTS (SELECT FROM waybill.api_keys WHERE publishes_per_second IS NOT NULL)
