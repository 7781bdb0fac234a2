-- Compares two ways to get rid of old events: removing rows in steps, and dropping partitions by range of ids.
-- Run it in an empty database: psql -f bench/sql/retention_lab.sql. `rows` can be given with -v rows=200000.
--
-- The tables have the columns and indexes of waybill.events and waybill.deliveries that every event pays for. A life is
-- an insert into both and two updates in place of the delivery, 100 events per statement. Look-ups are those of a
-- claim: one delivery and one event by key, with a generic plan.
\if :{?rows}
\else
    \set rows 200000
\endif
\set parts 20
\set QUIET on
SET client_min_messages = warning;
SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off;
SET enable_mergejoin = off; SET enable_memoize = off; SET plan_cache_mode = force_generic_plan;
DROP SCHEMA IF EXISTS lab CASCADE;
CREATE SCHEMA lab;

CREATE TABLE lab.events (
    id bigint NOT NULL, created_at timestamptz NOT NULL DEFAULT now(), namespace_id integer NOT NULL DEFAULT 1,
    title text NOT NULL, tags text NOT NULL, payload json, PRIMARY KEY (namespace_id, id));
CREATE INDEX ON lab.events (namespace_id, split_part(tags, ',', 1), id) WHERE tags <> '';
CREATE TABLE lab.deliveries (
    id bigint NOT NULL, event_id bigint NOT NULL, namespace_id integer NOT NULL DEFAULT 1, status text NOT NULL,
    lease_id bigint NOT NULL DEFAULT 0, updated_at timestamptz NOT NULL DEFAULT now(), worker_id text,
    PRIMARY KEY (namespace_id, id)) WITH (fillfactor = 60);

CREATE TABLE lab.ranged_events (LIKE lab.events INCLUDING DEFAULTS) PARTITION BY RANGE (id);
ALTER TABLE lab.ranged_events ADD PRIMARY KEY (namespace_id, id);
CREATE INDEX ON lab.ranged_events (namespace_id, split_part(tags, ',', 1), id) WHERE tags <> '';
CREATE TABLE lab.ranged_deliveries (LIKE lab.deliveries INCLUDING DEFAULTS) PARTITION BY RANGE (id);
ALTER TABLE lab.ranged_deliveries ADD PRIMARY KEY (namespace_id, id);

CREATE TABLE lab.figures (what text, way text, per_event_us numeric);

CREATE FUNCTION lab.create_partitions(rows bigint, parts bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR part IN 0 .. parts - 1 LOOP
        EXECUTE format('CREATE TABLE lab.ranged_events_%s PARTITION OF lab.ranged_events FOR VALUES FROM (%s) TO (%s)',
                       part, part * rows / parts + 1, (part + 1) * rows / parts + 1);
        EXECUTE format('CREATE TABLE lab.ranged_deliveries_%s PARTITION OF lab.ranged_deliveries '
                       'FOR VALUES FROM (%s) TO (%s) WITH (fillfactor = 60)',
                       part, part * rows / parts + 1, (part + 1) * rows / parts + 1);
    END LOOP;
END $$;

CREATE FUNCTION lab.note(what text, way text, began timestamptz, events bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO lab.figures
    SELECT what, way, round((extract(epoch FROM clock_timestamp() - began) * 1e6 / events)::numeric, 2)
$$;

-- Lives, 100 per statement.
CREATE PROCEDURE lab.live(prefix text, rows bigint) LANGUAGE plpgsql AS $$
DECLARE
    began timestamptz := clock_timestamp();
BEGIN
    FOR batch IN 0 .. rows / 100 - 1 LOOP
        EXECUTE format('INSERT INTO lab.%sevents (id, title, tags, payload) SELECT $1 * 100 + n, ''job'', ''bench'', $2
                        FROM generate_series(1, 100) n', prefix) USING batch, ('{"data":"' || repeat('x', 109) || '"}')::json;
        EXECUTE format('INSERT INTO lab.%sdeliveries (id, event_id, status) SELECT $1 * 100 + n, $1 * 100 + n, ''PENDING''
                        FROM generate_series(1, 100) n', prefix) USING batch;
        FOR lease IN 1 .. 2 LOOP
            EXECUTE format('UPDATE lab.%sdeliveries SET status = $3, lease_id = $2, worker_id = ''w'', updated_at = now()
                            WHERE namespace_id = 1 AND id BETWEEN $1 * 100 + 1 AND $1 * 100 + 100', prefix)
                USING batch, lease, CASE lease WHEN 1 THEN 'PROCESSING' ELSE 'COMPLETED' END;
        END LOOP;
        COMMIT;
    END LOOP;
    PERFORM lab.note('a life', CASE prefix WHEN '' THEN 'one table' ELSE 'partitions' END, began, rows);
END $$;

PREPARE one_event(bigint) AS
    SELECT FROM lab.deliveries d, lab.events e WHERE d.namespace_id = 1 AND d.id = $1 AND e.namespace_id = 1 AND e.id = d.event_id;
PREPARE one_ranged_event(bigint) AS
    SELECT FROM lab.ranged_deliveries d, lab.ranged_events e
    WHERE d.namespace_id = 1 AND d.id = $1 AND e.namespace_id = 1 AND e.id = d.event_id;

CREATE PROCEDURE lab.look_up(name text, way text, rows bigint) LANGUAGE plpgsql AS $$
DECLARE
    began timestamptz := clock_timestamp();
BEGIN
    FOR n IN 1 .. 20000 LOOP
        EXECUTE format('EXECUTE %I(%s)', name, (n * 7919) % rows + 1);
    END LOOP;
    PERFORM lab.note('a look-up', way, began, 20000);
END $$;

CREATE PROCEDURE lab.remove_rows(rows bigint) LANGUAGE plpgsql AS $$
DECLARE
    began timestamptz := clock_timestamp();
BEGIN
    FOR step IN 0 .. rows / 500 - 1 LOOP
        WITH old AS MATERIALIZED (
            SELECT e.ctid AS event_ctid, d.own_ctid FROM lab.events e CROSS JOIN LATERAL (
                SELECT ctid AS own_ctid FROM lab.deliveries WHERE namespace_id = 1 AND id = e.id AND status = 'COMPLETED'
                FOR UPDATE SKIP LOCKED) d
            WHERE e.namespace_id = 1 AND e.id > step * 500 AND e.id <= step * 500 + 500
        ),
        work AS (DELETE FROM lab.deliveries d USING old WHERE d.ctid = old.own_ctid)
        DELETE FROM lab.events e USING old WHERE e.ctid = old.event_ctid;
        COMMIT;
    END LOOP;
    PERFORM lab.note('removal', 'one table, in steps of 500', began, rows);
END $$;

-- A partition can be dropped when nothing in it is open. Here one event in a thousand is, and must be moved before.
CREATE PROCEDURE lab.drop_partitions(rows bigint, parts bigint) LANGUAGE plpgsql AS $$
DECLARE
    began timestamptz := clock_timestamp();
BEGIN
    CREATE TABLE lab.moved_events (LIKE lab.events);
    CREATE TABLE lab.moved_deliveries (LIKE lab.deliveries);
    FOR part IN 0 .. parts - 1 LOOP
        EXECUTE format('INSERT INTO lab.moved_deliveries SELECT * FROM lab.ranged_deliveries_%s WHERE id %% 1000 = 0', part);
        EXECUTE format('INSERT INTO lab.moved_events SELECT * FROM lab.ranged_events_%s WHERE id %% 1000 = 0', part);
        EXECUTE format('DROP TABLE lab.ranged_deliveries_%s', part);
        EXECUTE format('DROP TABLE lab.ranged_events_%s', part);
        COMMIT;
    END LOOP;
    PERFORM lab.note('removal', 'partitions, dropped', began, rows);
END $$;

SELECT lab.create_partitions(:rows, :parts) \g /dev/null
CALL lab.live('', :rows);
CALL lab.live('ranged_', :rows);
VACUUM ANALYZE lab.events;
VACUUM ANALYZE lab.deliveries;
VACUUM ANALYZE lab.ranged_events;
VACUUM ANALYZE lab.ranged_deliveries;
CHECKPOINT;
CALL lab.look_up('one_event', 'one table', :rows);
CALL lab.look_up('one_ranged_event', 'partitions', :rows);
CALL lab.remove_rows(:rows);
SELECT clock_timestamp() AS began \gset
VACUUM lab.events;
VACUUM lab.deliveries;
SELECT lab.note('vacuum after it', 'one table, in steps of 500', :'began', :rows) \g /dev/null
CALL lab.drop_partitions(:rows, :parts);
SELECT what, way, per_event_us AS "µs per event" FROM lab.figures;
DROP SCHEMA lab CASCADE;
