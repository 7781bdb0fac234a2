-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows subscriptions that were deleted more than :seconds seconds ago, with their secrets, rate
-- limiters and overruns. A subscription is kept while a delivery or a dead letter refers to it. Rows that are in use
-- are skipped. The number of deleted rows is that of subscriptions.
WITH old AS MATERIALIZED (
    SELECT s.namespace_id, s.id, s.ctid AS subscription_ctid
    FROM waybill.subscriptions s
    WHERE s.deleted_at < coalesce(:now, now()) - make_interval(secs => :seconds) AND s.drained_at IS NOT NULL
      AND NOT EXISTS (
          SELECT 1 FROM waybill.deliveries d
          WHERE d.namespace_id = s.namespace_id AND d.subscription_id = s.id
            -- As in the definition of the index.
            AND d.subscription_id > 0)
      AND NOT EXISTS (
          SELECT 1 FROM waybill.dead_letters l WHERE l.namespace_id = s.namespace_id AND l.subscription_id = s.id)
    ORDER BY s.namespace_id, s.id
    LIMIT :max_rows
    FOR UPDATE OF s SKIP LOCKED
),
secrets AS (
    DELETE FROM waybill.subscription_secrets k USING old
    WHERE k.namespace_id = old.namespace_id AND k.subscription_id = old.id
),
rates AS (
    DELETE FROM waybill.subscription_rates r USING old
    WHERE r.namespace_id = old.namespace_id AND r.subscription_id = old.id
),
overruns AS (
    DELETE FROM waybill.filter_overruns o USING old
    WHERE o.namespace_id = old.namespace_id AND o.subscription_id = old.id
)
DELETE FROM waybill.subscriptions s USING old WHERE s.ctid = old.subscription_ctid
