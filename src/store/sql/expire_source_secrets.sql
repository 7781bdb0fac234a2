-- :namespace_id int, :source_id bigint, :now timestamptz, :overlap_seconds float8
--
-- Lets the secrets of a source expire within :overlap_seconds.
UPDATE waybill.source_secrets
SET expires_at = least(expires_at, coalesce(:now, now()) + make_interval(secs => :overlap_seconds))
WHERE namespace_id = :namespace_id AND source_id = :source_id
