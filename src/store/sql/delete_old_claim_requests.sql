-- :now timestamptz, :seconds double precision, :max_rows bigint
--
-- Deletes up to :max_rows claim requests that were made more than :seconds seconds ago, the oldest first. A worker
-- that repeats an older request gets a new claim.
DELETE FROM waybill.claim_requests
WHERE (namespace_id, worker_id, idempotency_key) IN (
    SELECT namespace_id, worker_id, idempotency_key
    FROM waybill.claim_requests
    WHERE claimed_at < coalesce(:now, now()) - make_interval(secs => :seconds)
    ORDER BY claimed_at
    LIMIT :max_rows
    -- One that is used again at this moment stays.
    FOR UPDATE SKIP LOCKED
)
