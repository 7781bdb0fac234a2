-- WHY: whoever has no Prometheus sees here what was done, by minute for a week and by hour for a year. A server counts in
-- memory, and writes what has changed in one statement every ten seconds. It writes rows of its own only, whole values
-- and no increments: no two servers wait for each other, and a statement that is repeated changes nothing. What was done
-- in a minute is the sum over all servers.
--
-- `tag` is empty in the rows of a whole namespace. An event with several tags counts once there, and under each of its
-- tags. `server` is a random number that a server chooses when it starts, and after a restore of the database.
-- `revision` grows with every statement of a server: one that comes late does not replace newer values.
--
-- Latencies, from the publish of an event to its completion, are counts by bucket (`src/domain/stats/latency.rs`); only
-- buckets that are not empty are stored.
CREATE TABLE waybill.stats_minutes (
    minute           timestamptz NOT NULL,
    server           bigint      NOT NULL,
    namespace_id     integer     NOT NULL,
    revision         integer     NOT NULL,
    published        integer     NOT NULL,
    claimed          integer     NOT NULL,
    completed        integer     NOT NULL,
    failed           integer     NOT NULL, -- attempts of workers that failed, and events that were given up as poison
    retried          integer     NOT NULL, -- those of them after which another attempt follows
    released         integer     NOT NULL,
    reset            integer     NOT NULL,
    expired          integer     NOT NULL,
    pushes_succeeded integer     NOT NULL,
    pushes_failed    integer     NOT NULL,
    dead_lettered    integer     NOT NULL,
    tag              text        COLLATE "C" NOT NULL,
    latency_buckets  smallint[]  NOT NULL,
    latency_counts   integer[]   NOT NULL,
    PRIMARY KEY (namespace_id, tag, minute, server),
    CONSTRAINT stats_minutes_latencies_pair_up CHECK (cardinality(latency_buckets) = cardinality(latency_counts))
) WITH (
    -- A row is rewritten every ten seconds while its minute lasts, and never again.
    fillfactor = 70
);

CREATE INDEX stats_minutes_by_age ON waybill.stats_minutes (minute);

-- The same by hour. It is written along with the minutes and not made from them: nothing has to be compacted, and a
-- server that dies leaves no work behind.
CREATE TABLE waybill.stats_hours (
    hour             timestamptz NOT NULL,
    server           bigint      NOT NULL,
    namespace_id     integer     NOT NULL,
    revision         integer     NOT NULL,
    published        integer     NOT NULL,
    claimed          integer     NOT NULL,
    completed        integer     NOT NULL,
    failed           integer     NOT NULL,
    retried          integer     NOT NULL,
    released         integer     NOT NULL,
    reset            integer     NOT NULL,
    expired          integer     NOT NULL,
    pushes_succeeded integer     NOT NULL,
    pushes_failed    integer     NOT NULL,
    dead_lettered    integer     NOT NULL,
    tag              text        COLLATE "C" NOT NULL,
    latency_buckets  smallint[]  NOT NULL,
    latency_counts   integer[]   NOT NULL,
    PRIMARY KEY (namespace_id, tag, hour, server),
    CONSTRAINT stats_hours_latencies_pair_up CHECK (cardinality(latency_buckets) = cardinality(latency_counts))
) WITH (fillfactor = 70);

CREATE INDEX stats_hours_by_age ON waybill.stats_hours (hour);
