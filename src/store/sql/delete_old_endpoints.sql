-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows endpoints that nothing was sent to for :seconds seconds, the oldest first. An endpoint
-- that a subscription names or that is paused is kept. Endpoints that are being written to are skipped.
DELETE FROM waybill.endpoints
WHERE (namespace_id, url) IN (
    SELECT e.namespace_id, e.url
    FROM waybill.endpoints e
    WHERE e.updated_at < coalesce(:now, now()) - make_interval(secs => :seconds)
      AND (e.paused_until IS NULL OR e.paused_until < coalesce(:now, now()))
      AND NOT EXISTS (
          SELECT 1 FROM waybill.subscriptions s
          WHERE s.namespace_id = e.namespace_id AND s.url = e.url AND s.deleted_at IS NULL)
    ORDER BY e.updated_at
    LIMIT :max_rows
    FOR UPDATE OF e SKIP LOCKED
)
