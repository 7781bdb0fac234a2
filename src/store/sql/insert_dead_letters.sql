-- :now timestamptz, :namespace_ids int[], :delivery_ids bigint[], :reasons text[], :actors text[]
--
-- Stores abandoned pushes as dead letters, each with a snapshot of its event, its subscription and its
-- attempts, as this transaction sees them. The snapshot of a replayed push has the payload and the settings
-- with which it was sent. restore_pushes.sql makes the event and the push again from the snapshot.
--
-- Attempts are looked up by delivery, in an index of pushes only: the index by event would return the
-- entries of all pushes of the event. Partitions more than a day older than the event are not searched. The
-- day of margin is for a database whose clock was set back.
INSERT INTO waybill.dead_letters
       (namespace_id, delivery_id, event_id, subscription_id, subscription_version, reason, detail, actor,
        event, subscription, attempts, lease_id, ordering_key, created_at)
SELECT d.namespace_id, d.id, d.event_id, d.subscription_id, coalesce(r.subscription_version, s.version),
       t.reason, d.last_error, t.actor,
       json_build_object(
           'id', e.id, 'title', e.title, 'description', e.description, 'event_type', e.event_type, 'tags', e.tags,
           'labels', coalesce(e.labels, '{}'), 'payload', coalesce(r.payload, e.payload), 'priority', e.priority,
           'max_retries', e.max_retries, 'backoff', e.backoff, 'ordering_key', e.ordering_key,
           'correlation_id', e.correlation_id, 'traceparent', e.traceparent,
           'run_at', to_char(e.run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
           'expires_at', to_char(e.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
           'created_at', to_char(e.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')),
       coalesce(r.subscription, s.spec),
       a.attempts, d.lease_id, d.ordering_key,
       coalesce(:now, now())
FROM unnest(:namespace_ids, :delivery_ids, :reasons, :actors) AS t(namespace_id, delivery_id, reason, actor)
CROSS JOIN LATERAL (SELECT * FROM waybill.deliveries WHERE namespace_id = t.namespace_id AND id = t.delivery_id OFFSET 0) d
CROSS JOIN LATERAL (SELECT * FROM waybill.events WHERE namespace_id = t.namespace_id AND id = d.event_id OFFSET 0) e
CROSS JOIN LATERAL (SELECT version, spec FROM waybill.subscriptions WHERE namespace_id = t.namespace_id AND id = d.subscription_id OFFSET 0) s
LEFT JOIN LATERAL (
    SELECT coalesce(replay_payload, event -> 'payload') AS payload,
           CASE WHEN replay_config = 'original' THEN subscription END AS subscription,
           CASE WHEN replay_config = 'original' THEN subscription_version END AS subscription_version
    FROM waybill.dead_letters WHERE namespace_id = t.namespace_id AND id = d.replay_of OFFSET 0
) r ON true
CROSS JOIN LATERAL (
    SELECT coalesce(json_agg(json_build_object(
               'attempt', l.attempt,
               'started_at', to_char((l.created_at - make_interval(secs => coalesce(l.execution_time_ms, 0) / 1000.0))
                                     AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
               'duration_ms', l.execution_time_ms, 'status_code', l.status_code, 'error_kind', l.error_kind,
               'error_message', l.error_message, 'response_excerpt', l.response_excerpt,
               'subscription_version', l.subscription_version,
               'next_attempt_at', to_char(l.next_retry_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
           ORDER BY l.id), '[]') AS attempts
    FROM (
        SELECT * FROM waybill.event_log
        WHERE namespace_id = t.namespace_id AND delivery_id = d.id AND delivery_id IS NOT NULL AND action <> 'PICKED'
          AND created_at >= e.created_at - interval '1 day'
        OFFSET 0
    ) l
    WHERE l.action IN ('COMPLETED', 'FAILED') AND l.worker_id IS NOT NULL
) a
