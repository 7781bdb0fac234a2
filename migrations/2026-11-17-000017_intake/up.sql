-- WHY: a publisher that does not know whether its request arrived sends it again, and must not cause a second event. The
-- key that it names is unique in its namespace. The row outlives its event: the same request is still the same when
-- the event has been removed.
--
-- `origin` separates the keys of publishers from those of others, who know nothing of each other: see `KeyOrigin`.
-- `fingerprint` is a hash of the content, or empty if the content does not matter.
-- `expires_at` is null while the key lives as long as its event, which then says when it ends.
CREATE TABLE waybill.idempotency_keys (
    event_id     bigint      NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,
    origin       bigint      NOT NULL,
    namespace_id integer     NOT NULL,
    left_status  waybill.status,                     -- of an event that was removed: its last state
    key          text        COLLATE "C" NOT NULL,
    fingerprint  bytea       NOT NULL,
    PRIMARY KEY (namespace_id, origin, key)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX idempotency_keys_by_end ON waybill.idempotency_keys (expires_at) WHERE expires_at IS NOT NULL;

-- Where an event came from. Nulls cost nothing.
ALTER TABLE waybill.events
    ADD COLUMN key_origin      bigint,
    ADD COLUMN idempotency_key text COLLATE "C",
    ADD COLUMN published_by    text,                 -- the name of the key, or of the source
    ADD COLUMN client_address  text;

-- A statement that finds a key taken by a transaction that it could not see yet fails like any other conflict, and is
-- run again. Then it sees the key.
CREATE FUNCTION waybill.key_is_taken() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'an idempotency key was taken by a concurrent transaction' USING ERRCODE = '40001';
END
$$;
