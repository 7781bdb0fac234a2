-- WHY: what must hold of every row of `events` and `deliveries`, whoever writes it, in one place.
--
-- The rules are not CHECK constraints: PostgreSQL keeps those as text and parses them again for every statement.
-- Nor are they checked in production: a trigger that looks at every changed row costs a tenth of a small statement.
-- `enforce_rules(true)` adds the triggers; every test and every development build does. In production
-- `SELECT * FROM waybill.find_broken_rules()` returns the rows that break a rule; there should be none.
CREATE FUNCTION waybill.rule_broken_by_event(e waybill.events) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN NOT (e.tags <> '' OR e.event_type IS NOT NULL)
            THEN 'events_have_tags_or_a_type'
        WHEN NOT (length(e.title) BETWEEN 1 AND 255)
            THEN 'events_title_is_short'
        WHEN NOT (e.priority BETWEEN -100 AND 100)
            THEN 'events_priority_in_range'
        WHEN NOT (e.max_retries BETWEEN 1 AND 1000)
            THEN 'events_max_retries_in_range'
    END
$$;

CREATE FUNCTION waybill.rule_broken_by_delivery(d waybill.deliveries) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN NOT ((d.subscription_id IS NULL) = (d.id = d.event_id))
            THEN 'deliveries_own_row_has_the_events_id'
        WHEN NOT ((d.status = 'PROCESSING') = (d.lease_expires_at IS NOT NULL))
            THEN 'deliveries_lease_exactly_while_processing'
        WHEN NOT (d.status <> 'PROCESSING' OR (d.worker_id IS NOT NULL AND d.lease_id > 0))
            THEN 'deliveries_processing_by_a_claim'
        WHEN NOT (d.ready_seq IS NULL OR (d.status = 'PENDING' AND d.due_at IS NULL))
            THEN 'deliveries_ready_only_while_pending_and_due'
        WHEN NOT (d.due_at IS NULL OR d.status = 'PENDING')
            THEN 'deliveries_due_only_while_pending'
        WHEN NOT (d.status <> 'PENDING' OR d.ready_seq IS NOT NULL OR d.due_at IS NOT NULL OR d.order_seq IS NOT NULL
                  OR d.open_deliveries IS NOT NULL)
            THEN 'deliveries_pending_is_ready_or_waits_for_something'
        WHEN NOT (CASE WHEN d.order_seq IS NULL THEN d.ordering_key IS NULL OR d.status NOT IN ('PENDING', 'PROCESSING')
                       ELSE d.ordering_key IS NOT NULL
                            AND (d.status IN ('PENDING', 'PROCESSING')
                                 OR (d.status = 'FAILED' AND d.subscription_id IS NOT NULL))
                  END)
            THEN 'deliveries_ordered_exactly_while_unfinished'
        WHEN NOT (d.expires_at IS NULL OR d.status IN ('PENDING', 'PROCESSING'))
            THEN 'deliveries_expire_only_while_unfinished'
        WHEN NOT (d.retry_count BETWEEN 0 AND d.max_retries)
            THEN 'deliveries_retries_within_limit'
        WHEN NOT ((d.settled_lease_id IS NULL) = (d.settled_action IS NULL))
            THEN 'deliveries_settlement_is_whole'
        WHEN NOT (d.settled_lease_id IS NULL OR d.settled_lease_id <= d.lease_id)
            THEN 'deliveries_settled_by_a_claim_that_was'
        WHEN NOT (d.open_deliveries IS NULL OR (d.subscription_id IS NULL AND d.open_deliveries >= 0))
            THEN 'deliveries_are_counted_on_own_rows'
        WHEN NOT ((d.open_deliveries IS NULL) = (d.failed_deliveries IS NULL) AND coalesce(d.failed_deliveries, 0) >= 0)
            THEN 'deliveries_counts_are_whole'
        WHEN NOT (d.open_deliveries IS NULL OR (d.open_deliveries > 0) = (d.status = 'PENDING'))
            THEN 'deliveries_rolled_up_while_open'
        WHEN NOT (d.replay_of IS NULL OR d.subscription_id IS NOT NULL)
            THEN 'deliveries_replay_a_push'
        WHEN d.listed_status IS DISTINCT FROM
             CASE WHEN d.status IN ('FAILED', 'CANCELLED') OR d.open_deliveries IS NOT NULL
                       OR (d.status = 'COMPLETED' AND d.lease_id = 0)
                  THEN d.status END
            THEN 'deliveries_are_listed_by_their_status'
    END
$$;

-- Returns the rows that break a rule. It reads both tables from beginning to end.
CREATE FUNCTION waybill.find_broken_rules() RETURNS TABLE (table_name text, namespace_id integer, id bigint, rule text)
LANGUAGE sql STABLE AS $$
    SELECT 'events', e.namespace_id, e.id, r.rule
    FROM waybill.events e CROSS JOIN LATERAL (SELECT waybill.rule_broken_by_event(e) AS rule) r
    WHERE r.rule IS NOT NULL
    UNION ALL
    SELECT 'deliveries', d.namespace_id, d.id, r.rule
    FROM waybill.deliveries d CROSS JOIN LATERAL (SELECT waybill.rule_broken_by_delivery(d) AS rule) r
    WHERE r.rule IS NOT NULL
$$;

-- Refuses a statement that breaks a rule, as a CHECK constraint would: under the rule's name, and as a whole.
CREATE FUNCTION waybill.refuse_broken_rules() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken_rule  text;
    broken_by_id bigint;
BEGIN
    IF TG_TABLE_NAME = 'events' THEN
        SELECT r.rule, c.id INTO broken_rule, broken_by_id
        FROM changed_events c CROSS JOIN LATERAL (SELECT waybill.rule_broken_by_event(c) AS rule) r
        WHERE r.rule IS NOT NULL LIMIT 1;
    ELSE
        SELECT r.rule, c.id INTO broken_rule, broken_by_id
        FROM changed_deliveries c CROSS JOIN LATERAL (SELECT waybill.rule_broken_by_delivery(c) AS rule) r
        WHERE r.rule IS NOT NULL LIMIT 1;
    END IF;
    IF FOUND THEN
        RAISE check_violation USING
            MESSAGE = format('row %s of %s breaks the rule "%s"', broken_by_id, TG_TABLE_NAME, broken_rule),
            SCHEMA = 'waybill', TABLE = TG_TABLE_NAME, CONSTRAINT = broken_rule;
    END IF;
    RETURN NULL;
END
$$;

-- Adds or removes the triggers. Locks both tables for a moment, but only if there is something to do.
CREATE FUNCTION waybill.enforce_rules(enforced boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- Servers that start together take turns.
    PERFORM pg_advisory_xact_lock(hashtext('waybill.enforce_rules'));
    IF enforced = EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = 'waybill.deliveries'::regclass
                          AND tgname = 'refuse_broken_rules_on_insert') THEN
        RETURN;
    END IF;
    IF enforced THEN
        CREATE TRIGGER refuse_broken_rules_on_insert AFTER INSERT ON waybill.events
            REFERENCING NEW TABLE AS changed_events
            FOR EACH STATEMENT EXECUTE FUNCTION waybill.refuse_broken_rules();
        CREATE TRIGGER refuse_broken_rules_on_insert AFTER INSERT ON waybill.deliveries
            REFERENCING NEW TABLE AS changed_deliveries
            FOR EACH STATEMENT EXECUTE FUNCTION waybill.refuse_broken_rules();
        CREATE TRIGGER refuse_broken_rules_on_update AFTER UPDATE ON waybill.deliveries
            REFERENCING NEW TABLE AS changed_deliveries
            FOR EACH STATEMENT EXECUTE FUNCTION waybill.refuse_broken_rules();
    ELSE
        DROP TRIGGER refuse_broken_rules_on_insert ON waybill.events;
        DROP TRIGGER refuse_broken_rules_on_insert ON waybill.deliveries;
        DROP TRIGGER refuse_broken_rules_on_update ON waybill.deliveries;
    END IF;
END
$$;
