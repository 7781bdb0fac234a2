-- :namespace_id int, :now timestamptz, :kind text, :filter json, :config text, :reason text, :per_second float8,
-- :actor text, :matched bigint, :matched_is_exact boolean, :until_id bigint, :max_running bigint
--
-- Stores an operation, unless :max_running are running already. Returns its id.
INSERT INTO waybill.operations
       (namespace_id, kind, filter, config, reason, per_second, actor, matched, matched_is_exact, until_id, next_at,
        created_at)
SELECT :namespace_id, :kind, :filter, :config, :reason, :per_second, :actor, :matched, :matched_is_exact, :until_id, t.now,
       t.now
FROM (SELECT coalesce(:now, now()) AS now) t
WHERE (SELECT count(*) FROM waybill.operations WHERE namespace_id = :namespace_id AND status = 'RUNNING') < :max_running
RETURNING id
