//! Sources are created, changed and deleted, and their secrets are replaced.
//!
//! Each change first gives the catalog of sources a new generation, whose row lock serialises all changes, and notifies
//! all servers when it commits.

use diesel_async::AsyncPgConnection;
use serde_json::{Map, Value, json};

use crate::domain::audit::AuditAction::{SourceCreated, SourceDeleted, SourceSecretRotated, SourceUpdated};
use crate::domain::audit::AuditEntry;
use crate::domain::audit::subscription::{changes_between, shown_settings};
use crate::domain::encryption::{Binding, Field, Owner, StoredText};
use crate::domain::expected_version::ExpectedVersion;
use crate::domain::ids::{NamespaceId, SourceId};
use crate::domain::json::RawJson;
use crate::domain::limits;
use crate::domain::publish_limits::{LimitExceeded, LimitName};
use crate::domain::scope::Scope;
use crate::domain::source::{SourceSecret, SourceSpec, SourceToken};
use crate::error::Error;
use crate::store::tables::audit_log::record_audit;
use crate::store::tables::limits::limits_of;
use crate::store::tables::sources::{
    NewSource, SourceRow, count_source_secrets, count_sources, delete_source, insert_source, lock_source,
    next_source_id, renew_source_generation, replace_source_secret, update_source,
};

use crate::engine::limits::RETRY_STORED_AFTER;
use crate::engine::{Engine, transaction};

/// The changes that the owner of a source requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourceChanges {
    /// Fields and their new values. `null` restores the default. The fields of `verify` are merged.
    pub fields: Map<String, Value>,
    pub is_active: Option<bool>,
}

/// A new secret of a source.
#[derive(Debug, Clone)]
pub(crate) struct SourceSecretRotation {
    pub secret: String,
    /// For how long the old secrets are accepted, too.
    pub overlap_seconds: f64,
}

impl Engine {
    /// Creates a source, with its first secret if its scheme has one.
    pub(crate) async fn create_source(
        &self,
        scope: Scope,
        spec: SourceSpec,
        secret: Option<SourceSecret>,
        is_active: bool,
    ) -> Result<SourceRow, Error> {
        let engine = self.clone();
        let token = SourceToken::generate().map_err(Error::Internal)?;
        let row = self.detached(async move {
            transaction!(engine, |conn| {
                renew_source_generation(conn).await?;
                let count = count_sources(conn, &scope).await?;
                if count >= engine.settings().max_sources {
                    return Err(Error::TooManySources(engine.settings().max_sources));
                }
                if limits_of(conn, scope.namespace).await?.sources.is_some_and(|limit| count >= limit) {
                    return Err(LimitExceeded::of_namespace(LimitName::Sources, RETRY_STORED_AFTER).into());
                }
                let id = next_source_id(conn).await?;
                let json = to_stored(&spec)?;
                let stored = engine.encrypt_of_source(scope.namespace, id, Field::Token, token.as_text())?;
                let new = NewSource { id, token_hash: token.hash(), token: &stored, spec: &json, is_active };
                let row = insert_source(conn, &scope, &new).await?;
                if let Some(secret) = &secret {
                    let stored = engine.encrypt_of_source(scope.namespace, id, Field::Secret, secret.as_text())?;
                    replace_source_secret(conn, &scope, id, &stored, 0.0).await?;
                }
                let detail = json!({"settings": shown_settings(&spec.to_json()), "is_active": is_active});
                record_audit(conn, &scope, &AuditEntry::about(SourceCreated, id.0, detail)).await?;
                Ok(row)
            })
        });
        let row = row.await?;
        self.after_source_change().await;
        Ok(row)
    }

    /// Changes a source. Webhooks that arrive from now on are treated accordingly.
    pub(crate) async fn update_source(
        &self,
        scope: Scope,
        id: SourceId,
        expected: ExpectedVersion,
        changes: SourceChanges,
    ) -> Result<SourceRow, Error> {
        let engine = self.clone();
        let row = self.detached(async move {
            transaction!(engine, |conn| {
                renew_source_generation(conn).await?;
                let row = lock(conn, &scope, id, &expected).await?;
                let present = fields_of(&row)?;
                let spec = SourceSpec::changed(present.clone(), changes.fields.clone()).map_err(Error::Invalid)?;
                let is_active = changes.is_active.unwrap_or(row.is_active);
                let updated = update_source(conn, &scope, id, &to_stored(&spec)?, is_active).await?;
                let mut changed = changes_between(&present, &spec.to_json());
                if is_active != row.is_active {
                    changed.insert("is_active".into(), json!({"from": row.is_active, "to": is_active}));
                }
                let detail = json!({"version": updated.version, "changes": changed});
                record_audit(conn, &scope, &AuditEntry::about(SourceUpdated, id.0, detail)).await?;
                Ok(updated)
            })
        });
        let row = row.await?;
        self.after_source_change().await;
        Ok(row)
    }

    /// Deletes a source. Its events stay.
    pub(crate) async fn delete_source(
        &self,
        scope: Scope,
        id: SourceId,
        expected: ExpectedVersion,
    ) -> Result<(), Error> {
        let engine = self.clone();
        let deleted = self.detached(async move {
            transaction!(engine, |conn| {
                renew_source_generation(conn).await?;
                let row = lock(conn, &scope, id, &expected).await?;
                delete_source(conn, &scope, id).await?;
                let detail = json!({"settings": shown_settings(&fields_of(&row)?)});
                record_audit(conn, &scope, &AuditEntry::about(SourceDeleted, id.0, detail)).await?;
                Ok(())
            })
        });
        deleted.await?;
        self.after_source_change().await;
        Ok(())
    }

    /// Gives a source a new secret. The old ones are accepted for a while.
    pub(crate) async fn rotate_source_secret(
        &self,
        scope: Scope,
        id: SourceId,
        expected: ExpectedVersion,
        rotation: SourceSecretRotation,
    ) -> Result<SourceRow, Error> {
        let engine = self.clone();
        let row = self.detached(async move {
            transaction!(engine, |conn| {
                renew_source_generation(conn).await?;
                let row = lock(conn, &scope, id, &expected).await?;
                let SourceSecretRotation { secret, overlap_seconds } = &rotation;
                let spec = SourceSpec::parse(&fields_of(&row)?).map_err(Error::Invalid)?;
                let secret = spec.verify.parse_secret(secret).map_err(|reason| Error::invalid("secret", reason))?;
                let stored = engine.encrypt_of_source(scope.namespace, id, Field::Secret, secret.as_text())?;
                replace_source_secret(conn, &scope, id, &stored, *overlap_seconds).await?;
                if count_source_secrets(conn, &scope, id).await? > limits::SOURCE_SECRETS {
                    return Err(Error::TooManySecrets(limits::SOURCE_SECRETS));
                }
                let updated = update_source(conn, &scope, id, &row.spec.0, row.is_active).await?;
                let detail = json!({"version": updated.version, "overlap_seconds": overlap_seconds});
                record_audit(conn, &scope, &AuditEntry::about(SourceSecretRotated, id.0, detail)).await?;
                Ok(updated)
            })
        });
        let row = row.await?;
        self.after_source_change().await;
        Ok(row)
    }

    /// Returns the token in the URL of a source, or `None` if this server cannot decrypt it.
    pub(crate) fn token_of(&self, namespace: NamespaceId, row: &SourceRow) -> Option<String> {
        let binding = Binding { owner: Owner::Source(namespace.source(row.id)), field: Field::Token };
        self.settings().secret_keys.decrypt(&StoredText::of_marked_column(&row.token), &binding).ok()
    }

    fn encrypt_of_source(
        &self,
        namespace: NamespaceId,
        id: SourceId,
        field: Field<'_>,
        plain: &str,
    ) -> Result<StoredText, Error> {
        let binding = Binding { owner: Owner::Source(namespace.source(id)), field };
        self.settings().secret_keys.encrypt(plain, &binding).map_err(Error::Internal)
    }
}

/// Locks a source. Returns an error if its version is not one that the client expects.
async fn lock(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: SourceId,
    expected: &ExpectedVersion,
) -> Result<SourceRow, Error> {
    let row = lock_source(conn, scope, id).await?.ok_or(Error::SourceNotFound(id))?;
    match expected.includes(row.version) {
        true => Ok(row),
        false => Err(Error::VersionMismatch { what: "source", id: id.0, version: row.version }),
    }
}

fn to_stored(spec: &SourceSpec) -> Result<RawJson, Error> {
    RawJson::of(&spec.to_json()).map_err(|error| Error::Internal(error.to_string()))
}

fn fields_of(row: &SourceRow) -> Result<Map<String, Value>, Error> {
    serde_json::from_str(row.spec.0.as_str()).map_err(|error| Error::Internal(error.to_string()))
}
