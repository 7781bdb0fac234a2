-- :namespace_id int
--
-- Locks the row of a namespace. Transactions that count what the namespace has, and then add to it, run one at a time.
SELECT id FROM waybill.namespaces WHERE id = :namespace_id FOR NO KEY UPDATE
