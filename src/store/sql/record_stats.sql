-- :server bigint, :revision int, :are_hours boolean[], :namespace_ids int[], :tags text[], :starts timestamptz[],
-- :published int[], :claimed int[], :completed int[], :failed int[], :retried int[], :released int[], :reset int[],
-- :expired int[], :pushes_succeeded int[], :pushes_failed int[], :dead_lettered int[], :latency_buckets text[],
-- :latency_counts text[]
--
-- Stores what a server has done in some minutes and hours: whole values, which replace those that it stored before. A row
-- with a higher :revision is newer, and stays. Buckets and counts of latencies are one array per row, as text.
WITH input AS MATERIALIZED (
    SELECT is_hour, namespace_id, tag, start, published, claimed, completed, failed, retried, released, reset,
           expired, pushes_succeeded, pushes_failed, dead_lettered,
           latency_buckets::smallint[] AS latency_buckets, latency_counts::integer[] AS latency_counts
    FROM unnest(:are_hours, :namespace_ids, :tags, :starts, :published, :claimed, :completed, :failed, :retried,
                :released, :reset, :expired, :pushes_succeeded, :pushes_failed, :dead_lettered, :latency_buckets,
                :latency_counts)
         AS t(is_hour, namespace_id, tag, start, published, claimed, completed, failed, retried, released, reset,
              expired, pushes_succeeded, pushes_failed, dead_lettered, latency_buckets, latency_counts)
),
minutes AS (
    INSERT INTO waybill.stats_minutes AS m
           (minute, server, namespace_id, revision, published, claimed, completed, failed, retried, released, reset,
            expired, pushes_succeeded, pushes_failed, dead_lettered, tag, latency_buckets, latency_counts)
    SELECT start, :server, namespace_id, :revision, published, claimed, completed, failed, retried, released, reset,
           expired, pushes_succeeded, pushes_failed, dead_lettered, tag, latency_buckets, latency_counts
    FROM input WHERE NOT is_hour
    ORDER BY namespace_id, tag, start
    ON CONFLICT (namespace_id, tag, minute, server) DO UPDATE SET
        revision = excluded.revision, published = excluded.published, claimed = excluded.claimed,
        completed = excluded.completed, failed = excluded.failed, retried = excluded.retried,
        released = excluded.released, reset = excluded.reset, expired = excluded.expired,
        pushes_succeeded = excluded.pushes_succeeded, pushes_failed = excluded.pushes_failed,
        dead_lettered = excluded.dead_lettered, latency_buckets = excluded.latency_buckets,
        latency_counts = excluded.latency_counts
    WHERE m.revision < excluded.revision
)
INSERT INTO waybill.stats_hours AS h
       (hour, server, namespace_id, revision, published, claimed, completed, failed, retried, released, reset, expired,
        pushes_succeeded, pushes_failed, dead_lettered, tag, latency_buckets, latency_counts)
SELECT start, :server, namespace_id, :revision, published, claimed, completed, failed, retried, released, reset,
       expired, pushes_succeeded, pushes_failed, dead_lettered, tag, latency_buckets, latency_counts
FROM input WHERE is_hour
ORDER BY namespace_id, tag, start
ON CONFLICT (namespace_id, tag, hour, server) DO UPDATE SET
    revision = excluded.revision, published = excluded.published, claimed = excluded.claimed,
    completed = excluded.completed, failed = excluded.failed, retried = excluded.retried,
    released = excluded.released, reset = excluded.reset, expired = excluded.expired,
    pushes_succeeded = excluded.pushes_succeeded, pushes_failed = excluded.pushes_failed,
    dead_lettered = excluded.dead_lettered, latency_buckets = excluded.latency_buckets,
    latency_counts = excluded.latency_counts
WHERE h.revision < excluded.revision
