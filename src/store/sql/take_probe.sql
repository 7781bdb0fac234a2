-- :namespace_id int, :url text, :now timestamptz, :seconds float8
--
-- Takes the right to send one request to an endpoint whose breaker is open and whose pause is over. No other server
-- gets it for :seconds.
UPDATE waybill.endpoints
SET paused_until = coalesce(:now, now()) + make_interval(secs => :seconds)
WHERE namespace_id = :namespace_id AND url = :url AND opened_at IS NOT NULL AND paused_until <= coalesce(:now, now())
