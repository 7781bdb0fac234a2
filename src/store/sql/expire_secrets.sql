-- :subscription_id bigint, :now timestamptz, :overlap_seconds float8
--
-- Lets the secrets of a subscription expire within :overlap_seconds.
UPDATE waybill.subscription_secrets
SET expires_at = least(expires_at, coalesce(:now, now()) + make_interval(secs => :overlap_seconds))
WHERE subscription_id = :subscription_id
