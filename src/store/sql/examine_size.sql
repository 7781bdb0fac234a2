-- Returns the size of the database on disk, and the memory that PostgreSQL has for its pages.
SELECT json_build_object(
    'database_bytes', pg_database_size(current_database()),
    'shared_buffers_bytes', pg_size_bytes(current_setting('shared_buffers'))
)::text AS facts
