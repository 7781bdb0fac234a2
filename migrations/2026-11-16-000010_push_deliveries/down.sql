DELETE FROM waybill.event_log WHERE action IN ('DEAD_LETTERED', 'REPLAYED');
ALTER TABLE waybill.event_log
    DROP COLUMN error_kind,
    DROP COLUMN response_excerpt,
    DROP COLUMN subscription_version,
    DROP CONSTRAINT event_log_action_is_known,
    ADD CONSTRAINT event_log_action_is_known CHECK (action IN (
        'PICKED', 'STARTED', 'COMPLETED', 'FAILED', 'RELEASED', 'RESET', 'RETRIED', 'CANCELLED', 'EXPIRED'));

DROP INDEX waybill.deliveries_of_subscription;
DROP INDEX waybill.deliveries_of_event;
DELETE FROM waybill.ready r USING waybill.deliveries d WHERE d.id = r.delivery_id AND d.subscription_id IS NOT NULL;
DELETE FROM waybill.deliveries WHERE subscription_id IS NOT NULL;
UPDATE waybill.deliveries SET status = 'COMPLETED', open_deliveries = NULL, failed_deliveries = NULL WHERE open_deliveries > 0;
ALTER TABLE waybill.deliveries
    DROP CONSTRAINT deliveries_ordered_exactly_while_unfinished,
    ADD CONSTRAINT deliveries_ordered_exactly_while_unfinished
        CHECK ((order_seq IS NOT NULL) = (ordering_key IS NOT NULL AND status IN ('PENDING', 'PROCESSING'))),
    DROP CONSTRAINT deliveries_pending_is_ready_or_waits_for_something,
    ADD CONSTRAINT deliveries_pending_is_ready_or_waits_for_something
        CHECK (status <> 'PENDING' OR ready_seq IS NOT NULL OR due_at IS NOT NULL OR order_seq IS NOT NULL),
    DROP CONSTRAINT deliveries_replay_a_push,
    DROP CONSTRAINT deliveries_rolled_up_while_open,
    DROP CONSTRAINT deliveries_counts_are_whole,
    DROP CONSTRAINT deliveries_are_counted_on_own_rows,
    DROP COLUMN replay_of,
    DROP COLUMN failed_deliveries,
    DROP COLUMN open_deliveries;
