-- :namespace_id int, :now timestamptz, :retention_seconds double precision, :after_id bigint,
-- :created_seconds double precision, :max_rows bigint, :key_seconds double precision
--
-- Removes finished events, with their deliveries and tags. Visits up to :max_rows events behind :after_id, in
-- the order of their ids, and stops at the first one that was created less than :created_seconds ago. Events that were
-- created in the future, by a clock that was set back since, do not stop it: others follow them. Of all these it
-- removes the ones whose own delivery and whose pushes all finished more than :retention_seconds ago, unless a
-- failed push still blocks its ordering key. An event and each of its pushes count as one row, and at most
-- :max_rows rows are removed.
--
-- Returns one row: where the next step begins, what was removed, and the event at which the step stopped because it
-- has more pushes than one step may remove.
--
-- Locks: pushes first, then the event's own delivery, none of which is waited for. A row that is locked by another
-- transaction, or was changed since this statement began, keeps its event. Changes are noticed by the ctid: the locked
-- version of a row that was changed meanwhile has another ctid than the version that was found. All rows that are
-- deleted are locked, so their ctids are valid to the end.
--
-- The idempotency keys of the events stay, with the last state. Those that live as long as their event expire now, but
-- not before they are :key_seconds old.
--
-- One server at a time removes events of a namespace: the others would find the same rows locked.
--
-- The commit does not wait for the disk. A removal that a crash undoes is done again.
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(1463900483, :namespace_id) AS is_ours,
           set_config('synchronous_commit', 'off', true) AS setting,
           coalesce(:now, now()) - make_interval(secs => :retention_seconds) AS finished_before,
           coalesce(:now, now()) - make_interval(secs => :created_seconds) AS visited_before,
           -- Later than the snapshot, so that what was just published is not from the future.
           coalesce(:now, clock_timestamp()) AS visited_now
),
visited AS MATERIALIZED (
    SELECT id, created_at, tags, key_origin, idempotency_key, ctid AS event_ctid
    FROM waybill.events
    WHERE namespace_id = :namespace_id AND id > :after_id
    ORDER BY id
    LIMIT CASE WHEN (SELECT is_ours FROM turn) THEN :max_rows ELSE 0 END
),
old AS MATERIALIZED (
    SELECT id, created_at, tags, key_origin, idempotency_key, event_ctid
    FROM visited
    WHERE id < coalesce((SELECT min(id) FROM visited
                         WHERE created_at >= (SELECT visited_before FROM turn)
                           AND created_at <= (SELECT visited_now FROM turn)),
                        9223372036854775807)
),
finished AS MATERIALIZED (
    SELECT o.id, o.tags, o.key_origin, o.idempotency_key, o.event_ctid, d.own_ctid, d.status, p.pushes, sum(1 + p.pushes) OVER (ORDER BY o.id) AS rows_so_far
    FROM old o
    CROSS JOIN LATERAL (
        SELECT ctid AS own_ctid, status
        FROM waybill.deliveries
        WHERE namespace_id = :namespace_id AND id = o.id AND status IN ('COMPLETED', 'FAILED', 'CANCELLED')
          AND updated_at < (SELECT finished_before FROM turn)
        OFFSET 0
    ) d
    CROSS JOIN LATERAL (
        SELECT count(*) AS pushes
        FROM (SELECT FROM waybill.deliveries
              WHERE namespace_id = :namespace_id AND event_id = o.id AND subscription_id IS NOT NULL
              LIMIT :max_rows + 1) counted
    ) p
),
-- The first event that does not fit into this step.
next AS MATERIALIZED (
    SELECT id, pushes FROM finished WHERE rows_so_far > :max_rows ORDER BY id LIMIT 1
),
removable AS MATERIALIZED (
    SELECT f.id, f.tags, f.key_origin, f.idempotency_key, f.status, f.event_ctid, f.own_ctid, p.push_ctids
    FROM finished f
    CROSS JOIN LATERAL (
        SELECT count(*) AS locked, array_agg(push_ctid) AS push_ctids
        FROM (
            SELECT locked.push_ctid
            FROM (SELECT id, ctid AS found_ctid FROM waybill.deliveries
                  WHERE namespace_id = :namespace_id AND event_id = f.id AND subscription_id IS NOT NULL AND f.pushes > 0
                  OFFSET 0) found
            CROSS JOIN LATERAL (
                SELECT ctid AS push_ctid
                FROM waybill.deliveries
                WHERE namespace_id = :namespace_id AND id = found.id AND status IN ('COMPLETED', 'FAILED', 'CANCELLED')
                  AND updated_at < (SELECT finished_before FROM turn) AND (order_seq IS NULL) IS TRUE
                FOR UPDATE SKIP LOCKED
            ) locked
            WHERE locked.push_ctid = found.found_ctid
        ) pushes
    ) p
    CROSS JOIN LATERAL (
        SELECT ctid AS locked_ctid
        FROM waybill.deliveries
        WHERE namespace_id = :namespace_id AND id = f.id AND p.locked = f.pushes
          AND status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND updated_at < (SELECT finished_before FROM turn)
        FOR UPDATE SKIP LOCKED
    ) own
    WHERE f.rows_so_far <= :max_rows AND own.locked_ctid = f.own_ctid
),
pushes_removed AS (
    DELETE FROM waybill.deliveries d
    USING (SELECT unnest(push_ctids) AS push_ctid FROM removable) r
    WHERE d.ctid = r.push_ctid
    RETURNING 1
),
work_removed AS (
    DELETE FROM waybill.deliveries d USING removable r WHERE d.ctid = r.own_ctid
),
tags_found AS MATERIALIZED (
    SELECT t.tag_ctid
    FROM removable r
    CROSS JOIN LATERAL unnest((string_to_array(r.tags, ','))[2:]) AS further(tag)
    CROSS JOIN LATERAL (
        SELECT ctid AS tag_ctid FROM waybill.event_tags
        WHERE namespace_id = :namespace_id AND tag = further.tag COLLATE "C" AND event_id = r.id
        OFFSET 0
    ) t
    WHERE strpos(r.tags, ',') > 0
),
tags_removed AS (
    DELETE FROM waybill.event_tags t USING tags_found f WHERE t.ctid = f.tag_ctid RETURNING 1
),
keys_found AS MATERIALIZED (
    SELECT r.status, k.key_ctid
    FROM removable r
    CROSS JOIN LATERAL (
        SELECT ctid AS key_ctid FROM waybill.idempotency_keys
        WHERE namespace_id = :namespace_id AND origin = r.key_origin AND key = r.idempotency_key AND event_id = r.id
        OFFSET 0
    ) k
    WHERE r.idempotency_key IS NOT NULL
),
keys_kept AS (
    UPDATE waybill.idempotency_keys k
    SET left_status = f.status,
        expires_at = coalesce(k.expires_at, greatest(coalesce(:now, now()), k.created_at + make_interval(secs => :key_seconds)))
    FROM keys_found f
    WHERE k.ctid = f.key_ctid
),
events_removed AS (
    DELETE FROM waybill.events e USING removable r WHERE e.ctid = r.event_ctid RETURNING 1
)
SELECT turn.is_ours,
       -- Those that the step is done with.
       (SELECT count(*) FROM old WHERE id < coalesce((SELECT id FROM next), 9223372036854775807)) AS visited,
       (SELECT count(*) FROM events_removed) AS events,
       (SELECT count(*) FROM pushes_removed) AS pushes,
       (SELECT count(*) FROM tags_removed) AS tags,
       -- The last event of which all that fits was removed; null if there is none.
       coalesce((SELECT max(o.id) FROM old o WHERE o.id < (SELECT id FROM next)),
                CASE WHEN NOT EXISTS (SELECT 1 FROM next) THEN (SELECT max(id) FROM old) END) AS last_id,
       (SELECT id FROM next WHERE pushes >= :max_rows) AS large_event_id,
       -- Whether there are further events that are old enough.
       (SELECT count(*) FROM old) = :max_rows OR EXISTS (SELECT 1 FROM next) AS has_more,
       -- By how much the last visited event was created before the bound.
       greatest(extract(epoch FROM turn.finished_before
                                   - (SELECT max(created_at) FROM old WHERE created_at < turn.visited_before)),
                0)::float8 AS lag_seconds
FROM turn
