-- :namespace_id int, :subscription_id bigint, :after_id bigint, :max_rows bigint
--
-- Reads up to :max_rows pushes of a subscription behind :after_id. Returns those that are open and whose
-- cancellation has not been requested, and the last one that was read.
SELECT coalesce(array_agg(id ORDER BY id) FILTER (WHERE is_open), '{}') AS open, max(id) AS last
FROM (SELECT id, status = 'PENDING' OR (status = 'PROCESSING' AND NOT cancel_requested) AS is_open
      FROM waybill.deliveries
      WHERE namespace_id = :namespace_id
        AND (subscription_id, id) > (:subscription_id, :after_id) AND subscription_id <= :subscription_id AND subscription_id > 0
      ORDER BY subscription_id, id LIMIT :max_rows) pushes
