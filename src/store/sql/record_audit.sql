-- :namespace_ids int[], :now timestamptz, :actions text[], :actors text[], :subject_kinds text[],
-- :subject_ids bigint[], :addresses text[], :details json[]
--
-- Appends entries to the audit log, with ids in the order given.
INSERT INTO waybill.audit_log
       (namespace_id, created_at, action, actor, subject_kind, subject_id, address, detail)
SELECT t.namespace_id, coalesce(:now, now()), t.action, t.actor, t.subject_kind, t.subject_id, t.address, t.detail
FROM unnest(:namespace_ids, :actions, :actors, :subject_kinds, :subject_ids, :addresses, :details) WITH ORDINALITY
     AS t(namespace_id, action, actor, subject_kind, subject_id, address, detail, ord)
ORDER BY t.ord
