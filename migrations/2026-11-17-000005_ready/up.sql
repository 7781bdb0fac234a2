-- WHY: `ready` has exactly what can be claimed now, in the order in which it is to be claimed. Every rule about
-- *when* something may run (due time, order by key, pauses) decides when a row enters this table, so a claim never
-- filters and costs the same whatever else waits.
--
-- One row per queue of a delivery. `queue` is 't:' + tag for the pull queue, 's:' + subscription for pushes. `rank`
-- is minus the priority, so that one ascending index gives the claim order. `seq` grows with every entry: work that
-- comes back joins the tail.
CREATE SEQUENCE waybill.ready_seq AS bigint MAXVALUE 9007199254740991;

CREATE TABLE waybill.ready (
    seq          bigint   NOT NULL,
    delivery_id  bigint   NOT NULL,
    namespace_id integer  NOT NULL DEFAULT 1,
    rank         smallint NOT NULL,
    queue        text     COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace_id, queue, rank, seq)
) WITH (
    -- A row lives for one insert and one delete; only vacuum keeps the head of the index clean.
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

-- The events that can be claimed, in the order of their ids, for the list of pending events.
CREATE INDEX ready_by_event ON waybill.ready (namespace_id, delivery_id) WHERE queue >= 't:';
