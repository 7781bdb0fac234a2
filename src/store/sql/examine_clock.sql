-- Returns the time of the database.
SELECT json_build_object('database_seconds', extract(epoch FROM clock_timestamp())::float8)::text AS facts
