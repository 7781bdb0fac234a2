-- Returns the epoch of the present history, whether the database continues from an earlier state, whether it accepts
-- writes, and whether a restore into it has not ended.
SELECT epoch, waybill.has_gone_back() AS has_gone_back,
       current_setting('transaction_read_only')::boolean AS is_read_only,
       to_regnamespace('waybill_restoring') IS NOT NULL AS is_being_restored
FROM waybill.histories
ORDER BY first_id DESC
LIMIT 1
