-- :instance text, :now timestamptz, :alive_seconds float8, :kept_seconds float8
--
-- Notes that this server is alive, and returns the number of servers that are. Rows of servers that are long gone are
-- removed. One that is locked is left: two servers that come back together must not wait for each other.
WITH here AS (
    INSERT INTO waybill.servers (instance, seen_at) VALUES (:instance, coalesce(:now, now()))
    ON CONFLICT (instance) DO UPDATE SET seen_at = excluded.seen_at
    RETURNING seen_at
),
gone AS (
    DELETE FROM waybill.servers
    WHERE instance IN (
        SELECT s.instance FROM waybill.servers s CROSS JOIN here
        WHERE s.seen_at < here.seen_at - make_interval(secs => :kept_seconds)
        FOR UPDATE OF s SKIP LOCKED
    )
)
SELECT 1 + (
    SELECT count(*) FROM waybill.servers s
    WHERE s.instance <> :instance AND s.seen_at > here.seen_at - make_interval(secs => :alive_seconds)
) AS servers
FROM here
