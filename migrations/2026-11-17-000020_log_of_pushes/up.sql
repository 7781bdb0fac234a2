-- WHY: a dead letter copies the attempts of its push, and they were looked for among all log lines
-- of the event. An event has as many pushes as there are subscriptions, so giving all of them up
-- cost the square of that: 3,000 pushes took 18 seconds.
--
-- Only lines about how pushes ended are indexed. An event's own work, whose delivery has the
-- event's id, pays nothing, and a push that succeeds at once pays one entry.
CREATE INDEX event_log_of_pushes ON waybill.event_log (delivery_id, id)
    WHERE delivery_id <> event_id AND action <> 'PICKED';
