-- Returns the version of PostgreSQL and the name of the database.
SELECT current_setting('server_version') AS version, current_database()::text AS name
