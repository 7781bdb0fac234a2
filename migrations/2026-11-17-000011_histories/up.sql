-- WHY: a restore, or a failover to a standby that lagged behind, takes sequences and counters back,
-- and numbers that were given out are given out again, for other things. So the database knows its
-- histories. A history begins when the schema is made, and another one whenever the database turns
-- out to go on from an earlier state. Each has a random epoch, which stands in the ids that
-- receivers de-duplicate by and in the cursors of lists, and each begins far behind the numbers
-- that were given out before, as far as this database remembers.
--
-- An event belongs to the history with the greatest `first_id` that is not above its id, so an event
-- from before a failover keeps its epoch.
CREATE TABLE waybill.histories (
    first_id          bigint      PRIMARY KEY,      -- the first id out of waybill.ids
    first_ready_seq   bigint      NOT NULL,         -- the first number out of waybill.ready_seq
    first_log_id      bigint      NOT NULL,         -- the first number out of waybill.event_log_ids
    epoch             text        NOT NULL CONSTRAINT histories_epoch_is_unique UNIQUE,
    system_identifier bigint,                       -- these four: which database it was,
    timeline          bigint,                       -- see identify_database();
    database_oid      bigint      NOT NULL,         -- null: not known
    table_oid         bigint      NOT NULL,
    reason            text        NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT histories_epoch_is_short CHECK (epoch ~ '^[a-z2-7]{8}$'),
    CONSTRAINT histories_reason_is_known CHECK (reason IN ('created', 'noticed', 'by_hand'))
);

-- Returns eight random characters out of 32. Bytes 8 to 15 of a random UUID are random in their
-- last five bits.
CREATE FUNCTION waybill.random_epoch() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT string_agg(substr('abcdefghijklmnopqrstuvwxyz234567', (get_byte(bytes, n) & 31) + 1, 1), '')
    FROM uuid_send(gen_random_uuid()) AS bytes, generate_series(8, 15) AS n
$$;

-- Returns what tells this database from another one, and from itself before a restore:
-- - the system identifier: another cluster;
-- - the timeline: a standby was promoted, or a backup recovered to a point in time. That of the
--   log's present file is the present one right after a promotion, unlike that of the last
--   checkpoint. A standby has none of its own;
-- - the OID of the database: a copy (CREATE DATABASE … TEMPLATE);
-- - the OID of the table of histories: a dump was restored, which creates the table anew.
-- What a role may not ask for, or a provider has switched off, is null.
CREATE FUNCTION waybill.identify_database(
    OUT system_identifier bigint, OUT timeline bigint, OUT database_oid bigint, OUT table_oid bigint)
LANGUAGE plpgsql AS $$
BEGIN
    database_oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
    table_oid := 'waybill.histories'::regclass::oid;
    BEGIN
        system_identifier := (SELECT s.system_identifier FROM pg_control_system() s);
    EXCEPTION WHEN OTHERS THEN
        NULL;
    END;
    BEGIN
        IF NOT pg_is_in_recovery() THEN
            timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
        END IF;
    EXCEPTION WHEN OTHERS THEN
        NULL;
    END;
END
$$;

-- Returns whether the database goes on from an earlier state of another one, or of itself. What is
-- not known, then or now, tells nothing.
CREATE FUNCTION waybill.has_gone_back() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(h.system_identifier <> d.system_identifier, false)
           OR coalesce(h.timeline <> d.timeline, false)
           OR h.database_oid <> d.database_oid
           OR h.table_oid <> d.table_oid
    FROM (SELECT * FROM waybill.histories ORDER BY first_id DESC LIMIT 1) h
    CROSS JOIN waybill.identify_database() d
$$;

-- Begins a history, unless somebody else just has: `by_hand` begins one in any case. Servers that
-- notice at the same time take turns.
--
-- All sequences jump ahead, by 2^36 and a random part of as much again: numbers that were given out
-- and are forgotten are not given out again, nor are those that were given out after an earlier
-- restore of the same backup. Sequences do not wait for the commit. So whoever must know which
-- history a number belongs to takes the lock, shared, before it reads the table.
--
-- The catalog gets another number: events that were matched before are matched again.
CREATE FUNCTION waybill.begin_history(by_hand boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    distance bigint := 68719476736;
    sequence regclass;
    present  bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('waybill.histories', 0));
    IF NOT by_hand AND NOT waybill.has_gone_back() THEN
        RETURN false;
    END IF;
    FOR sequence, present IN
        SELECT format('%I.%I', s.schemaname, s.sequencename)::regclass, coalesce(s.last_value, 0)
        FROM pg_sequences s WHERE s.schemaname = 'waybill' ORDER BY s.sequencename
    LOOP
        PERFORM setval(sequence, present + distance + floor(random() * distance)::bigint);
    END LOOP;
    INSERT INTO waybill.histories
           (first_id, first_ready_seq, first_log_id, epoch, system_identifier, timeline, database_oid, table_oid, reason)
    SELECT nextval('waybill.ids'), nextval('waybill.ready_seq'), nextval('waybill.event_log_ids'),
           waybill.random_epoch(), d.system_identifier, d.timeline, d.database_oid, d.table_oid,
           CASE WHEN by_hand THEN 'by_hand' ELSE 'noticed' END
    FROM waybill.identify_database() d;
    UPDATE waybill.subscription_catalog SET generation = waybill.random_generation();
    PERFORM pg_notify('waybill_ready', 'history');
    RETURN true;
END
$$;

INSERT INTO waybill.histories
       (first_id, first_ready_seq, first_log_id, epoch, system_identifier, timeline, database_oid, table_oid, reason)
SELECT 0, 0, 0, waybill.random_epoch(), d.system_identifier, d.timeline, d.database_oid, d.table_oid, 'created'
FROM waybill.identify_database() d;
