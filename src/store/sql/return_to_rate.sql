-- :subscription_id bigint, :rate float8, :unused float8
--
-- Returns unused requests to a rate limiter.
UPDATE waybill.subscription_paces
SET used_until = used_until - make_interval(secs => :unused / :rate)
WHERE subscription_id = :subscription_id
