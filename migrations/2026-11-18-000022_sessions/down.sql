DELETE FROM waybill.api_key_secrets WHERE is_session;
ALTER TABLE waybill.api_key_secrets DROP COLUMN is_session;
