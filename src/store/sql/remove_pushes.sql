-- :namespace_id int, :now timestamptz, :retention_seconds double precision, :event_id bigint, :max_rows bigint
--
-- Removes up to :max_rows pushes of an event that has more of them than one step may remove, if the event could be
-- removed as a whole: its own delivery and all pushes finished more than :retention_seconds ago, and no failed push
-- blocks its ordering key. Returns the number of removed pushes.
--
-- The event stays consistent between two such steps, for whoever reads or retries it: failed pushes are removed last,
-- and are taken off the count on the event's own delivery. So an event whose push failed is FAILED to its end.
--
-- Locks and ctids: see remove_events.sql.
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(1463900483, :namespace_id) AS is_ours,
           set_config('synchronous_commit', 'off', true) AS setting,
           coalesce(:now, now()) - make_interval(secs => :retention_seconds) AS finished_before
),
found AS MATERIALIZED (
    SELECT id, ctid AS found_ctid, status,
           status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND order_seq IS NULL
           AND updated_at < (SELECT finished_before FROM turn) AS is_removable
    FROM waybill.deliveries
    WHERE namespace_id = :namespace_id AND event_id = :event_id AND subscription_id IS NOT NULL
      AND (SELECT is_ours FROM turn)
),
chosen AS MATERIALIZED (
    SELECT id, found_ctid, status
    FROM found
    WHERE (SELECT bool_and(is_removable) FROM found)
    ORDER BY status = 'FAILED', id
    -- One is always left for the step that removes the event.
    LIMIT least(:max_rows, (SELECT count(*) FROM found) - 1)
),
locked AS MATERIALIZED (
    SELECT l.push_ctid, c.status
    FROM chosen c
    CROSS JOIN LATERAL (
        SELECT ctid AS push_ctid FROM waybill.deliveries
        WHERE namespace_id = :namespace_id AND id = c.id FOR UPDATE SKIP LOCKED
    ) l
    WHERE l.push_ctid = c.found_ctid
),
own AS MATERIALIZED (
    SELECT l.own_ctid
    FROM (SELECT ctid AS found_ctid FROM waybill.deliveries
          WHERE namespace_id = :namespace_id AND id = :event_id OFFSET 0) f
    CROSS JOIN LATERAL (
        SELECT ctid AS own_ctid
        FROM waybill.deliveries
        WHERE namespace_id = :namespace_id AND id = :event_id AND status IN ('COMPLETED', 'FAILED', 'CANCELLED')
          AND updated_at < (SELECT finished_before FROM turn)
          -- Reads `locked` first: pushes are locked before their event's own delivery.
          AND (SELECT count(*) FROM locked) > 0
        FOR UPDATE SKIP LOCKED
    ) l
    WHERE l.own_ctid = f.found_ctid
),
removed AS (
    DELETE FROM waybill.deliveries d
    USING (SELECT l.push_ctid FROM own CROSS JOIN locked l) l
    WHERE d.ctid = l.push_ctid
    RETURNING d.status
),
counted AS (
    UPDATE waybill.deliveries d
    SET failed_deliveries = d.failed_deliveries - r.failed
    FROM own CROSS JOIN (SELECT count(*)::integer AS failed FROM removed WHERE status = 'FAILED') r
    WHERE d.ctid = own.own_ctid AND d.open_deliveries IS NOT NULL AND r.failed > 0
)
SELECT count(*) AS pushes FROM removed
