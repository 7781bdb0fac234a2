-- WHY: migrations behind one that ran alone share a transaction again.
CREATE FUNCTION waybill.count_traced() RETURNS bigint LANGUAGE sql STABLE AS
    'SELECT count(*) FROM waybill.events WHERE namespace_id = 1 AND traceparent IS NOT NULL';
