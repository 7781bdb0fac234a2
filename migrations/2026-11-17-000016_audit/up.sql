-- WHY: every change says who made it. A line of the event log that its lease holder did not cause names its actor: a
-- key, or a service of the server. What is not about one event has a trail of its own, `audit_log`.
--
-- An actor is the name of a key, or `server:<service>`. It is null where nobody is to be named: lines of the lease
-- holder, and callers of a server without keys. A null costs no byte: the row has a bitmap of nulls already.
ALTER TABLE waybill.event_log ADD COLUMN actor text;

-- A view keeps the columns that it was made with.
CREATE OR REPLACE VIEW waybill.event_trails AS
    SELECT * FROM waybill.event_log WHERE delivery_id IS NULL AND action = 'COMPLETED'
    UNION ALL
    SELECT * FROM waybill.event_log WHERE delivery_id IS NOT NULL OR action <> 'COMPLETED';

-- Who asked for the cancellation: the line CANCELLED may be written much later, when the worker's claim has ended.
ALTER TABLE waybill.deliveries ADD COLUMN cancel_actor text;

-- `detail` says what changed. Secrets and header values are not in it, and URLs only up to the first segment of their
-- path. An entry about refused calls stands for many calls. Both logs take their ids from one sequence, so that these
-- tell which of two entries came first.
CREATE TABLE waybill.audit_log (
    id           bigint      NOT NULL DEFAULT nextval('waybill.event_log_ids'),
    namespace_id integer     NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL,
    action       text        NOT NULL COLLATE "C",
    actor        text        COLLATE "C",
    subject_kind text,
    subject_id   bigint,
    address      text,                               -- the client's
    detail       json        NOT NULL,
    PRIMARY KEY (namespace_id, id),
    CONSTRAINT audit_log_subject_is_whole CHECK (subject_kind IS NOT NULL OR subject_id IS NULL)
);

CREATE INDEX audit_log_by_action ON waybill.audit_log (namespace_id, action, id);
CREATE INDEX audit_log_by_actor ON waybill.audit_log (namespace_id, actor, id) WHERE actor IS NOT NULL;
CREATE INDEX audit_log_by_age ON waybill.audit_log (created_at);
