-- WHY: the audit trail: one row per action, only ever appended, outliving the event. It is
-- partitioned by day, so that retention drops whole tables instead of deleting rows. A
-- unique index cannot span partitions, so whether an action was already recorded is decided
-- on the delivery's row and never here.
CREATE SEQUENCE waybill.event_log_ids AS bigint;

CREATE TABLE waybill.event_log (
    id                bigint      NOT NULL DEFAULT nextval('waybill.event_log_ids'),
    namespace_id      integer     NOT NULL DEFAULT 1,
    event_id          bigint      NOT NULL,
    delivery_id       bigint      NOT NULL,
    action            text        NOT NULL,
    worker_id         text,
    lease_id          integer     NOT NULL,
    attempt           integer     NOT NULL,
    status_code       integer,
    execution_time_ms bigint,
    error_message     text,
    reason            text,
    next_retry_at     timestamptz,
    created_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id, created_at),
    CONSTRAINT event_log_action_is_known CHECK (action IN (
        'PICKED', 'STARTED', 'COMPLETED', 'FAILED', 'RELEASED', 'RESET', 'RETRIED', 'CANCELLED', 'EXPIRED'))
) PARTITION BY RANGE (created_at);

CREATE INDEX event_log_by_event ON waybill.event_log (event_id, id);

-- The safety net: a day that nobody prepared must not cost anybody a write.
CREATE TABLE waybill.event_log_default PARTITION OF waybill.event_log DEFAULT;

-- Prepares one day. Rows of that day that fell into the net meanwhile move along.
--
-- Everybody is kept waiting at the door, the parent's lock, for the moment that it takes:
-- a writer that has already chosen the net would find that its row must not be there any
-- more, and fail; a reader that has already listed the partitions would look for moved rows
-- in the net alone, and miss them. Whoever calls this sets a `lock_timeout`, since all others
-- queue up behind it. Servers that start together take turns.
CREATE FUNCTION waybill.create_event_log_partition(day date) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    partition text := 'event_log_' || to_char(day, 'YYYYMMDD');
    begins    timestamptz := day::timestamp AT TIME ZONE 'UTC';
    ends      timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('waybill.create_event_log_partition'));
    IF to_regclass('waybill.' || partition) IS NOT NULL THEN
        RETURN false;
    END IF;
    LOCK TABLE waybill.event_log IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('CREATE TABLE waybill.%I (LIKE waybill.event_log INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition);
    EXECUTE format(
        'WITH moved AS (DELETE FROM waybill.event_log_default WHERE created_at >= $1 AND created_at < $2 RETURNING *)
         INSERT INTO waybill.%I SELECT * FROM moved', partition) USING begins, ends;
    EXECUTE format('ALTER TABLE waybill.event_log ATTACH PARTITION waybill.%I FOR VALUES FROM (%L) TO (%L)', partition, begins, ends);
    RETURN true;
END
$$;
