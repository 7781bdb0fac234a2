-- :namespace_id int, :urls text[], :now timestamptz
--
-- Returns the state of endpoints. Endpoints without a row are left out.
SELECT url, failures_in_row, opened_at, paused_until, coalesce(:now, now()) AS now
FROM waybill.endpoints
WHERE namespace_id = :namespace_id AND url = ANY (:urls)
