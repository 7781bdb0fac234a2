//! Sessions: what a browser has instead of a key.
//!
//! A session is one more secret of a key. Requests find it in the [`KeyCache`](super::KeyCache) like other secrets, on
//! all servers, and it ends with the key. Only a key makes a session, and a session ends no later than the secret that
//! made it: otherwise a secret that was replaced could live on in sessions.

use std::time::Instant;

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::domain::api_key::{KeyHash, SessionSecret};
use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::limits;
use crate::domain::scope::Scope;
use crate::error::Error;
use crate::store::tables::api_keys::{load_keys, renew_key_generation};
use crate::store::tables::audit_log::record_audit;
use crate::store::tables::sessions::{delete_old_sessions, delete_session, insert_session, lock_key_catalog};

use super::{Admission, unauthenticated};
use crate::engine::{Engine, transaction};

impl Engine {
    /// Gives the holder of a key a session of at most `seconds`. Returns its secret and when it ends. If the key has
    /// too many, its oldest one ends. A key logs in only so often. `scope` is that of the key.
    pub async fn begin_session(
        &self,
        scope: Scope,
        key: KeyHash,
        seconds: f64,
    ) -> Result<(SessionSecret, DateTime<Utc>), Error> {
        if let Some(wait) = self.keys().logins.take(key, Instant::now()) {
            return Err(Error::TooManyGuesses { retry_after: wait.as_secs() + 1 });
        }
        let secret = SessionSecret::generate().map_err(Error::Internal)?;
        let (engine, made) = (self.clone(), secret.clone());
        let begun = self.detached(async move {
            transaction!(engine, |conn| {
                // The key in memory may have been revoked or replaced on another server a moment ago.
                lock_key_catalog(conn).await?;
                let row = load_keys(conn, &[key]).await?.keys.pop().ok_or_else(|| unauthenticated(Some(key)))?;
                let (id, name, until) = (row.id, row.name.clone(), row.expires_at);
                Admission::of_key(row).check(engine.time())?;
                let ended = delete_old_sessions(conn, &scope, id, limits::KEY_SESSIONS - 1).await?;
                if ended > 0 {
                    renew_key_generation(conn).await?;
                }
                let expires_at = insert_session(conn, &scope, id, &made, (seconds, until)).await?;
                let detail = json!({"name": name, "expires_at": expires_at});
                record_audit(conn, &scope, &AuditEntry::about(AuditAction::KeyLoggedIn, id.0, detail)).await?;
                Ok((expires_at, ended > 0))
            })
        });
        let (expires_at, has_ended_others) = begun.await?;
        if has_ended_others {
            self.after_key_change().await;
        }
        Ok((secret, expires_at))
    }

    /// Ends a session, on all servers. `scope` is that of its key.
    pub async fn end_session(&self, scope: Scope, session: KeyHash) -> Result<(), Error> {
        let engine = self.clone();
        let ended = self.detached(async move {
            transaction!(engine, |conn| {
                renew_key_generation(conn).await?;
                if let Some(row) = load_keys(conn, &[session]).await?.keys.pop() {
                    delete_session(conn, session).await?;
                    let detail = json!({"name": row.name});
                    record_audit(conn, &scope, &AuditEntry::about(AuditAction::KeyLoggedOut, row.id.0, detail)).await?;
                }
                Ok(())
            })
        });
        ended.await?;
        self.after_key_change().await;
        Ok(())
    }
}
