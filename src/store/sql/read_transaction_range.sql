-- Returns the number of the oldest transaction that is running, and the number of the next one that begins.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next
