-- WHY: an index on a table that may have millions of rows is built while they are written.
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_built_later ON waybill.events (namespace_id, traceparent, id) WHERE traceparent IS NOT NULL
