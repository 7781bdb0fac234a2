-- Returns the epoch of the present history, whether the database continues from an earlier state, and whether it
-- accepts writes.
SELECT epoch, waybill.has_gone_back() AS has_gone_back,
       current_setting('transaction_read_only')::boolean AS is_read_only
FROM waybill.histories
ORDER BY first_id DESC
LIMIT 1
