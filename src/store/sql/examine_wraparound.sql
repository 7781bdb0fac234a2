-- Returns the database of this server whose transaction ids are the oldest. PostgreSQL refuses all writes, to all
-- databases, when an age reaches 2^31.
SELECT json_build_object(
    'database', datname, 'transaction_age', age(datfrozenxid), 'multixact_age', mxid_age(datminmxid),
    'freeze_max_age', current_setting('autovacuum_freeze_max_age')::bigint
)::text AS facts
FROM pg_database
WHERE datallowconn
ORDER BY greatest(age(datfrozenxid), mxid_age(datminmxid)) DESC
LIMIT 1
