-- WHY: a push is a delivery like any other, with a subscription as its consumer. Three things
-- are new.
--
-- An event that is only pushed has no work of its own; its own row says what became of its
-- deliveries. `open_deliveries` counts those that are unfinished, `failed_deliveries` those that
-- were given up; the row is PENDING until none is open. Counted, not looked up: two deliveries
-- that end at the same moment must not each take the other for open.
--
-- A subscriber may want the rest of a key to wait when one of its deliveries is given up. That
-- delivery then keeps its place in the order although it is FAILED.
--
-- A delivery that is sent again from the dead letters may carry what the dead letter says and
-- not what the subscription says by now.
ALTER TABLE waybill.deliveries
    ADD COLUMN open_deliveries integer,
    ADD COLUMN failed_deliveries integer,
    ADD COLUMN replay_of bigint,
    ADD CONSTRAINT deliveries_are_counted_on_own_rows
        CHECK (open_deliveries IS NULL OR (subscription_id IS NULL AND open_deliveries >= 0)),
    ADD CONSTRAINT deliveries_counts_are_whole
        CHECK ((open_deliveries IS NULL) = (failed_deliveries IS NULL) AND failed_deliveries >= 0),
    ADD CONSTRAINT deliveries_rolled_up_while_open
        CHECK (open_deliveries IS NULL OR (open_deliveries > 0) = (status = 'PENDING')),
    ADD CONSTRAINT deliveries_replay_a_push
        CHECK (replay_of IS NULL OR subscription_id IS NOT NULL),
    DROP CONSTRAINT deliveries_pending_is_ready_or_waits_for_something,
    ADD CONSTRAINT deliveries_pending_is_ready_or_waits_for_something
        CHECK (status <> 'PENDING' OR ready_seq IS NOT NULL OR due_at IS NOT NULL OR order_seq IS NOT NULL
               OR open_deliveries IS NOT NULL),
    DROP CONSTRAINT deliveries_ordered_exactly_while_unfinished,
    ADD CONSTRAINT deliveries_ordered_exactly_while_unfinished
        CHECK (CASE WHEN order_seq IS NULL THEN ordering_key IS NULL OR status NOT IN ('PENDING', 'PROCESSING')
                    ELSE ordering_key IS NOT NULL
                         AND (status IN ('PENDING', 'PROCESSING') OR (status = 'FAILED' AND subscription_id IS NOT NULL))
               END);

-- One delivery per event and subscription.
CREATE UNIQUE INDEX deliveries_of_event ON waybill.deliveries (event_id, subscription_id)
    WHERE subscription_id IS NOT NULL;
CREATE INDEX deliveries_of_subscription ON waybill.deliveries (subscription_id, id)
    WHERE subscription_id IS NOT NULL;

-- What is known of an attempt to push, and two more things that can be done to a delivery.
ALTER TABLE waybill.event_log
    ADD COLUMN error_kind text,
    ADD COLUMN response_excerpt text,
    ADD COLUMN subscription_version integer,
    DROP CONSTRAINT event_log_action_is_known,
    ADD CONSTRAINT event_log_action_is_known CHECK (action IN (
        'PICKED', 'STARTED', 'COMPLETED', 'FAILED', 'RELEASED', 'RESET', 'RETRIED', 'CANCELLED', 'EXPIRED',
        'DEAD_LETTERED', 'REPLAYED'));
