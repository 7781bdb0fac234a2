-- Returns deliveries with an ordering key that should have been swept $5 seconds ago, with the lock
-- of their key. Reads up to $6 candidates of each kind, from the low-water marks $2 to $4 on.
(SELECT c.id, (hashtextextended(c.namespace_id || ':' || c.ordering_key, 0) & 1023)::integer AS key_lock
 FROM (SELECT id, namespace_id, ordering_key FROM waybill.deliveries
       WHERE due_at >= coalesce($2, '-infinity') AND due_at <= coalesce($1, now()) - make_interval(secs => $5)
       ORDER BY due_at LIMIT $6) c
 WHERE c.ordering_key IS NOT NULL)
UNION ALL
(SELECT c.id, (hashtextextended(c.namespace_id || ':' || c.ordering_key, 0) & 1023)::integer
 FROM (SELECT id, namespace_id, ordering_key FROM waybill.deliveries
       WHERE expires_at >= coalesce($3, '-infinity') AND expires_at <= coalesce($1, now()) - make_interval(secs => $5)
         AND status = 'PENDING'
       ORDER BY expires_at LIMIT $6) c
 WHERE c.ordering_key IS NOT NULL)
UNION ALL
-- What the lease reaper could not lock is back on the list, to be looked at within the next second.
(SELECT d.id, (hashtextextended(d.namespace_id || ':' || d.ordering_key, 0) & 1023)::integer
 FROM (SELECT delivery_ids FROM waybill.lease_watch
       WHERE $7 AND look_at >= coalesce($4, '-infinity') AND look_at <= coalesce($1, now()) + interval '1 second'
       ORDER BY look_at, id LIMIT $6) w
 CROSS JOIN LATERAL unnest(w.delivery_ids) AS watched(id)
 CROSS JOIN LATERAL (
     SELECT id, namespace_id, ordering_key FROM waybill.deliveries
     WHERE id = watched.id AND ordering_key IS NOT NULL
       AND lease_expires_at <= coalesce($1, now()) - make_interval(secs => $5)
     OFFSET 0
 ) d
 LIMIT $6)
