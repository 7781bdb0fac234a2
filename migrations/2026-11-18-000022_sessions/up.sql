-- WHY: people use the server's pages in a browser, which must not keep their key. A login gives it a secret of its own: a
-- session, which ends by itself. It is a secret of the key like others, so it is found, expires, is revoked and allows
-- as they do. Servers of the version before never take it for a key, because its text does not have the form of one; they
-- count it as a secret of its key.
ALTER TABLE waybill.api_key_secrets ADD COLUMN is_session boolean NOT NULL DEFAULT false;
