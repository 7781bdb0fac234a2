-- :namespace_id int, :subscription_id bigint, :rate float8, :unused float8
--
-- Returns unused requests to a rate limiter.
UPDATE waybill.subscription_rates
SET used_until = used_until - make_interval(secs => :unused / :rate)
WHERE namespace_id = :namespace_id AND subscription_id = :subscription_id
