-- :namespace_id int, :subscription_id bigint, :now timestamptz, :overlap_seconds float8
--
-- Lets the secrets of a subscription expire within :overlap_seconds.
UPDATE waybill.subscription_secrets
SET expires_at = least(expires_at, coalesce(:now, now()) + make_interval(secs => :overlap_seconds))
WHERE namespace_id = :namespace_id AND subscription_id = :subscription_id
