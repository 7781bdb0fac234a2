-- :now timestamptz, :due_from timestamptz, :expires_from timestamptz, :look_from timestamptz,
-- :overdue_seconds double precision, :max_candidates bigint, :with_leases bool
--
-- Returns deliveries with an ordering key that should have been swept :overdue_seconds ago, with the lock of
-- their key. Reads up to :max_candidates of each kind, from its low-water mark on: :due_from,
-- :expires_from or :look_from. Expired leases are included only if :with_leases is true.
(SELECT c.namespace_id, c.id, (hashtextextended(c.namespace_id || ':' || c.ordering_key, 0) & 1023)::integer AS key_lock
 FROM (SELECT id, namespace_id, ordering_key FROM waybill.deliveries
       WHERE due_at >= coalesce(:due_from, '-infinity')
         AND due_at <= coalesce(:now, now()) - make_interval(secs => :overdue_seconds)
       ORDER BY due_at LIMIT :max_candidates) c
 WHERE c.ordering_key IS NOT NULL)
UNION ALL
(SELECT c.namespace_id, c.id, (hashtextextended(c.namespace_id || ':' || c.ordering_key, 0) & 1023)::integer
 FROM (SELECT id, namespace_id, ordering_key FROM waybill.deliveries
       WHERE expires_at >= coalesce(:expires_from, '-infinity')
         AND expires_at <= coalesce(:now, now()) - make_interval(secs => :overdue_seconds)
         AND status = 'PENDING'
       ORDER BY expires_at LIMIT :max_candidates) c
 WHERE c.ordering_key IS NOT NULL)
UNION ALL
-- Deliveries that the lease reaper could not lock are back on the list, to be checked within one second.
(SELECT d.namespace_id, d.id, (hashtextextended(d.namespace_id || ':' || d.ordering_key, 0) & 1023)::integer
 FROM (SELECT namespace_id, delivery_ids FROM waybill.lease_watch
       WHERE :with_leases AND look_at >= coalesce(:look_from, '-infinity')
         AND look_at <= coalesce(:now, now()) + interval '1 second'
       ORDER BY look_at, id LIMIT :max_candidates) w
 CROSS JOIN LATERAL unnest(w.delivery_ids) AS watched(id)
 CROSS JOIN LATERAL (
     SELECT id, namespace_id, ordering_key FROM waybill.deliveries
     WHERE namespace_id = w.namespace_id AND id = watched.id AND ordering_key IS NOT NULL
       AND lease_expires_at <= coalesce(:now, now()) - make_interval(secs => :overdue_seconds)
     OFFSET 0
 ) d
 LIMIT :max_candidates)
