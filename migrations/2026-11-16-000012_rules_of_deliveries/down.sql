ALTER TABLE waybill.deliveries
    ADD CONSTRAINT deliveries_status_is_known
        CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'CANCELLED')),
    ADD CONSTRAINT deliveries_own_row_has_the_events_id
        CHECK ((subscription_id IS NULL) = (id = event_id)),
    ADD CONSTRAINT deliveries_lease_exactly_while_processing
        CHECK ((status = 'PROCESSING') = (lease_expires_at IS NOT NULL)),
    ADD CONSTRAINT deliveries_processing_by_a_claim
        CHECK (status <> 'PROCESSING' OR (worker_id IS NOT NULL AND lease_id > 0)),
    ADD CONSTRAINT deliveries_ready_only_while_pending_and_due
        CHECK (ready_seq IS NULL OR (status = 'PENDING' AND due_at IS NULL)),
    ADD CONSTRAINT deliveries_due_only_while_pending
        CHECK (due_at IS NULL OR status = 'PENDING'),
    ADD CONSTRAINT deliveries_pending_is_ready_or_waits_for_something
        CHECK (status <> 'PENDING' OR ready_seq IS NOT NULL OR due_at IS NOT NULL OR order_seq IS NOT NULL
               OR open_deliveries IS NOT NULL),
    ADD CONSTRAINT deliveries_ordered_exactly_while_unfinished
        CHECK (CASE WHEN order_seq IS NULL THEN ordering_key IS NULL OR status NOT IN ('PENDING', 'PROCESSING')
                    ELSE ordering_key IS NOT NULL
                         AND (status IN ('PENDING', 'PROCESSING') OR (status = 'FAILED' AND subscription_id IS NOT NULL))
               END),
    ADD CONSTRAINT deliveries_expire_only_while_unfinished
        CHECK (expires_at IS NULL OR status IN ('PENDING', 'PROCESSING')),
    ADD CONSTRAINT deliveries_retries_within_limit
        CHECK (retry_count BETWEEN 0 AND max_retries),
    ADD CONSTRAINT deliveries_settlement_is_whole
        CHECK ((settled_lease_id IS NULL) = (settled_action IS NULL)),
    ADD CONSTRAINT deliveries_settled_by_a_claim_that_was
        CHECK (settled_lease_id IS NULL OR settled_lease_id <= lease_id),
    ADD CONSTRAINT deliveries_are_counted_on_own_rows
        CHECK (open_deliveries IS NULL OR (subscription_id IS NULL AND open_deliveries >= 0)),
    ADD CONSTRAINT deliveries_counts_are_whole
        CHECK ((open_deliveries IS NULL) = (failed_deliveries IS NULL) AND failed_deliveries >= 0),
    ADD CONSTRAINT deliveries_rolled_up_while_open
        CHECK (open_deliveries IS NULL OR (open_deliveries > 0) = (status = 'PENDING')),
    ADD CONSTRAINT deliveries_replay_a_push
        CHECK (replay_of IS NULL OR subscription_id IS NOT NULL);
DROP TRIGGER changed_deliveries_keep_the_rules ON waybill.deliveries;
DROP TRIGGER new_deliveries_keep_the_rules ON waybill.deliveries;
DROP FUNCTION waybill.keep_the_rules_of_deliveries();
