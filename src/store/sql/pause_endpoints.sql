-- :namespace_ids int[], :urls text[], :now timestamptz, :seconds float8[]
--
-- Pauses each of :urls for its number of :seconds. A longer pause stays. Each endpoint must be given
-- once and in order, which prevents deadlocks.
INSERT INTO waybill.endpoints AS e (namespace_id, url, paused_until, updated_at)
SELECT u.namespace_id, u.url, coalesce(:now, now()) + make_interval(secs => u.seconds), coalesce(:now, now())
FROM unnest(:namespace_ids, :urls, :seconds) AS u(namespace_id, url, seconds)
ON CONFLICT (namespace_id, url) DO UPDATE
SET paused_until = greatest(e.paused_until, excluded.paused_until), updated_at = excluded.updated_at
