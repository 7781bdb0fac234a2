-- WHY: the audit trail: one row per action, only ever appended, outliving the event. It is partitioned by week, so
-- that retention drops whole tables instead of deleting rows, and the trail of an event is still looked for in few
-- of them. A unique index cannot span partitions, so whether an action was already recorded is decided on the
-- delivery's row and never here.
--
-- Two rows are written for each event that succeeds, so an index entry more is felt. Lines are found by their
-- event; the others indexes are sparse:
-- - lines in the order of ids: every 64th id leads to the place (event_log_samples), and the lines between two of
--   them are found by their place on disk (event_log_blocks);
-- - lines of a worker: by the blocks that may contain it;
-- - lines with one action: only the rare actions are indexed. PICKED and COMPLETED are everywhere.
CREATE SEQUENCE waybill.event_log_ids AS bigint MAXVALUE 9007199254740991;

CREATE TABLE waybill.event_log (
    id                   bigint      NOT NULL DEFAULT nextval('waybill.event_log_ids'),
    created_at           timestamptz NOT NULL DEFAULT now(),
    event_id             bigint      NOT NULL,
    lease_id             bigint      NOT NULL,
    delivery_id          bigint,                     -- of a push; null for the event's own work
    execution_time_ms    bigint,
    next_retry_at        timestamptz,
    namespace_id         integer     NOT NULL DEFAULT 1,
    attempt              integer     NOT NULL,
    action               waybill.action NOT NULL,
    status_code          integer,
    subscription_version integer,
    worker_id            text        COLLATE "C",
    error_message        text,
    reason               text,
    error_kind           text,
    response_excerpt     text
) PARTITION BY RANGE (created_at);

-- The trail of an event. The completions of pull events have an index of their own, at no further cost: it is the
-- list of completed events, in the order of their ids. `event_trails` reads both.
CREATE INDEX event_log_by_event ON waybill.event_log (namespace_id, event_id, id)
    WHERE delivery_id IS NOT NULL OR action <> 'COMPLETED';
CREATE INDEX event_log_completions ON waybill.event_log (namespace_id, event_id, id)
    WHERE delivery_id IS NULL AND action = 'COMPLETED';

CREATE VIEW waybill.event_trails AS
    SELECT * FROM waybill.event_log WHERE delivery_id IS NULL AND action = 'COMPLETED'
    UNION ALL
    SELECT * FROM waybill.event_log WHERE delivery_id IS NOT NULL OR action <> 'COMPLETED';

-- How pushes ended: an event has as many pushes as there are subscriptions, and the attempts of one of them must not
-- be searched among those of all.
CREATE INDEX event_log_of_pushes ON waybill.event_log (namespace_id, delivery_id, id)
    WHERE delivery_id IS NOT NULL AND action <> 'PICKED';

CREATE INDEX event_log_by_action ON waybill.event_log (namespace_id, action, id)
    WHERE action <> 'PICKED' AND action <> 'COMPLETED';

CREATE INDEX event_log_samples ON waybill.event_log (namespace_id, id) WHERE id % 64 = 0;
CREATE INDEX event_log_time_samples ON waybill.event_log (namespace_id, created_at, id) WHERE id % 64 = 0;
CREATE INDEX event_log_blocks ON waybill.event_log
    USING brin (id, namespace_id int4_bloom_ops (n_distinct_per_range = 32), worker_id text_bloom_ops (n_distinct_per_range = 128))
    WITH (pages_per_range = 16, autosummarize = on);

-- The safety net: a week that nobody prepared must not cost anybody a write.
CREATE TABLE waybill.event_log_default PARTITION OF waybill.event_log DEFAULT;

-- Creates the partition of the week that contains `day`, from Monday to Monday. Rows of that week that are in the
-- default partition move along.
--
-- Everybody waits at the lock of the parent for the moment that it takes: a writer that has already chosen the
-- default partition would find that its row must not be there any more, and fail; a reader that has already listed the
-- partitions would miss the moved rows. The caller sets a `lock_timeout`, since all others queue up behind it.
-- Servers that start together take turns.
CREATE FUNCTION waybill.create_event_log_partition(day date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    monday    date := date_trunc('week', day::timestamp)::date;
    partition text := 'event_log_' || to_char(monday, 'YYYYMMDD');
    begins    timestamptz := monday::timestamp AT TIME ZONE 'UTC';
    ends      timestamptz := (monday + 7)::timestamp AT TIME ZONE 'UTC';
    patience  text := current_setting('lock_timeout');
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('waybill.create_event_log_partition'));
    IF to_regclass('waybill.' || partition) IS NOT NULL THEN
        RETURN false;
    END IF;
    -- PostgreSQL cancels a vacuum of its own only for somebody who waits for more than a second. Nobody who reads or writes
    -- waits behind this lock.
    PERFORM set_config('lock_timeout', '3s', true);
    LOCK TABLE waybill.event_log IN SHARE UPDATE EXCLUSIVE MODE;
    PERFORM set_config('lock_timeout', patience, true);
    LOCK TABLE waybill.event_log IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('CREATE TABLE waybill.%I (LIKE waybill.event_log INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition);
    EXECUTE format(
        'WITH moved AS (DELETE FROM waybill.event_log_default WHERE created_at >= $1 AND created_at < $2 RETURNING *)
         INSERT INTO waybill.%I SELECT * FROM moved', partition) USING begins, ends;
    EXECUTE format('ALTER TABLE waybill.event_log ATTACH PARTITION waybill.%I FOR VALUES FROM (%L) TO (%L)', partition, begins, ends);
    -- An index of blocks begins with a summary of its first blocks, which every line in them would have to update.
    -- Without one, they are summarized once, when they are full.
    PERFORM brin_desummarize_range(i.indexrelid, 0)
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
    WHERE i.indrelid = ('waybill.' || quote_ident(partition))::regclass AND a.amname = 'brin';
    RETURN true;
END
$$;
