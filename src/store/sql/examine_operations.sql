-- :now timestamptz, :count_cap bigint, :max_rows bigint, :overdue_seconds double precision
--
-- Returns how many operations run, and those whose next step is due for more than :overdue_seconds, or whose steps fail.
WITH running AS MATERIALIZED (
    SELECT n.name AS namespace, o.id, o.kind, o.failed_steps,
           extract(epoch FROM coalesce(:now, now()) - o.next_at)::float8 AS overdue_seconds
    FROM (SELECT namespace_id, id, kind, failed_steps, next_at FROM waybill.operations
          WHERE status = 'RUNNING' ORDER BY next_at LIMIT :count_cap) o
    JOIN waybill.namespaces n ON n.id = o.namespace_id
)
SELECT json_build_object(
    'running', (SELECT count(*) FROM running),
    'stuck', (SELECT coalesce(json_agg(json_build_object(
                 'namespace', namespace, 'id', id, 'kind', kind, 'failed_steps', failed_steps,
                 'overdue_seconds', overdue_seconds
              ) ORDER BY overdue_seconds DESC, id), '[]')
              FROM (SELECT * FROM running WHERE overdue_seconds > :overdue_seconds OR failed_steps > 0
                    ORDER BY overdue_seconds DESC, id LIMIT :max_rows) s)
)::text AS facts
