//! API keys: who a request comes from, and how keys are made, replaced and revoked.
//!
//! [`Engine::admit_cached`] decides about a request. It usually finds the key in the [`cache::KeyCache`] and costs no
//! statement. Each change of a key gives the catalog of keys in the database another generation and notifies all
//! servers, which then compare their caches with the database ([`Engine::refresh_keys`]); a server that misses the
//! notification notices the generation within its poll interval. Requests that wait under a key that has ended are
//! dropped ([`admission::Admission::while_valid`]).
//!
//! From the first key on, requests must carry one, on all servers.

mod admission;
mod cache;
mod guesses;
mod logins;
mod sessions;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel_async::AsyncPgConnection;
use serde_json::{Map, json};

use crate::domain::api_key::{ApiKey, KeyHash, TagPatterns};
use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::ids::{KeyId, NamespaceId};
use crate::domain::limits;
use crate::domain::publish_limits::RateChange;
use crate::domain::scope::Scope;
use crate::error::{Error, OutageKind};
use crate::store::tables::api_keys::{
    ListedKey, NewKey, count_admin_keys, get_key, insert_api_key, is_name_in_use, load_key_generation, load_keys,
    record_key_use, renew_key_generation, replace_key_secret, revoke_key, update_key_rate,
};
use crate::store::tables::audit_log::record_audit;

use crate::engine::own_task::in_own_task;
use crate::engine::{Engine, transaction};
pub use admission::Admission;
use cache::Found;
pub use cache::KeyCache;
pub(crate) use guesses::{Guesses, network_of};

/// The time that a look-up of a key waits for its turn.
const LOOK_UP_PATIENCE: Duration = Duration::from_secs(2);

/// The number of times that a key is looked up while the keys keep changing.
const LOOK_UPS: usize = 5;

/// The maximum number of keys whose use one statement records.
const ROWS_PER_STATEMENT: usize = 5_000;

impl Engine {
    /// Returns what a request is admitted with if that is known without a query: `Ok(None)` means that the key must
    /// be looked up. `key` is the hash of the key that the request carries, if any.
    pub fn admit_cached(&self, key: Option<KeyHash>) -> Result<Option<Arc<Admission>>, Error> {
        match self.keys().find(key) {
            Found::Admission(admission) => admission.check(self.time()).map(|()| Some(admission)),
            Found::Unknown => Err(unauthenticated(key)),
            Found::NotCached => Ok(None),
            Found::Outdated => {
                Err(Error::outage(OutageKind::Unreachable, "the keys could not be checked for too long"))
            }
        }
    }

    /// Returns whose key this is, if it is in memory, whether it is good or not.
    pub fn holder_of(&self, key: KeyHash) -> Option<Arc<Admission>> {
        match self.keys().find(Some(key)) {
            Found::Admission(admission) => Some(admission),
            Found::Unknown | Found::NotCached | Found::Outdated => None,
        }
    }

    /// Looks up a key that is not in memory. An address that has sent too many unknown keys has to wait, unless there is
    /// something left of the reserve.
    pub async fn look_up_key(&self, key: KeyHash, address: Option<IpAddr>) -> Result<Arc<Admission>, Error> {
        let mut is_reserved = self.reserve_if_needed(address)?;
        let permit = tokio::time::timeout(LOOK_UP_PATIENCE, self.keys().look_ups.acquire()).await;
        let _permit = permit.ok().and_then(Result::ok).ok_or(Error::Overloaded)?;
        for _ in 0..LOOK_UPS {
            // Another request may have looked it up meanwhile.
            if let Some(admission) = self.admit_cached(Some(key))? {
                return Ok(admission);
            }
            // Others from the same address may have used up its budget while this one waited for its turn.
            if !is_reserved {
                is_reserved = self.reserve_if_needed(address)?;
            }
            let mut conn = self.database().connection().await?;
            let loaded = load_keys(&mut conn, &[key]).await?;
            drop(conn);
            let is_known = !loaded.keys.is_empty();
            if !self.keys().add(key, loaded) {
                self.refresh_keys().await?;
            } else if !is_known && self.keys().is_required() {
                self.keys().guesses.note(address, Instant::now());
                return Err(unauthenticated(Some(key)));
            } else if !is_known && let Some(anonymous) = self.admit_cached(None)? {
                return Ok(anonymous);
            }
        }
        Err(Error::outage(OutageKind::Conflict, "the keys keep changing"))
    }

    /// Takes a look-up from the reserve for an address that has sent too many unknown keys, and refuses it if nothing is
    /// left. Returns `false` if the address has a budget of its own.
    fn reserve_if_needed(&self, address: Option<IpAddr>) -> Result<bool, Error> {
        let now = Instant::now();
        match self.keys().guesses.wait(address, now).filter(|_| self.keys().is_required()) {
            None => Ok(false),
            Some(_) if self.keys().reserve.take(now) => Ok(true),
            Some(wait) => Err(Error::TooManyGuesses { retry_after: wait.as_secs() + 1 }),
        }
    }

    /// Compares the keys in memory with the database, if they may have changed.
    pub async fn refresh_keys(&self) -> Result<(), Error> {
        let _turn = self.keys().refreshing.lock().await;
        let mut conn = self.database().connection().await?;
        if load_key_generation(&mut conn).await? == self.keys().generation() {
            self.keys().confirm(self.time());
            return Ok(());
        }
        for _ in 0..LOOK_UPS {
            let hashes = self.keys().hashes();
            let loaded = load_keys(&mut conn, &hashes).await?;
            if self.keys().replace(&hashes, loaded, self.time()) {
                return Ok(());
            }
        }
        Err(Error::outage(OutageKind::Conflict, "the keys keep changing"))
    }

    /// Makes a key. Returns it and its secret, which is shown this once. `caller` is the key that asks for it, if any.
    pub async fn create_key(
        &self,
        scope: Scope,
        caller: Option<KeyHash>,
        new: NewKey,
    ) -> Result<(ListedKey, ApiKey), Error> {
        let secret = ApiKey::generate().map_err(Error::Internal)?;
        let (engine, made) = (self.clone(), secret.clone());
        let row = self.detached(async move {
            transaction!(engine, |conn| {
                engine.begin_key_change(conn, caller).await?;
                let id = insert_api_key(conn, &scope, &new, &made, limits::API_KEYS).await?;
                let Some(id) = id else { return Err(why_not_made(conn, &scope, &new.name).await?) };
                record_audit(conn, &scope, &key_created(id, &new)).await?;
                get_key(conn, &scope, id).await?.ok_or(Error::KeyNotFound(id))
            })
        });
        let row = row.await?;
        self.after_key_change().await;
        Ok((row, secret))
    }

    /// Makes changes of keys take turns, and checks that the caller's key is still good: the one in memory may have been
    /// revoked on another server a moment ago, and what it makes or changes here would outlive it.
    async fn begin_key_change(&self, conn: &mut AsyncPgConnection, caller: Option<KeyHash>) -> Result<(), Error> {
        renew_key_generation(conn).await?;
        let loaded = load_keys(conn, caller.as_slice()).await?;
        match loaded.keys.into_iter().next() {
            Some(row) => Admission::of_key(row).check(self.time()),
            None if loaded.is_required => Err(unauthenticated(caller)),
            None => Ok(()),
        }
    }

    /// Revokes a key. A second call changes nothing. The last key that may make others stays.
    pub async fn revoke_key(&self, scope: Scope, caller: Option<KeyHash>, id: KeyId) -> Result<ListedKey, Error> {
        let engine = self.clone();
        let row = self.detached(async move {
            transaction!(engine, |conn| {
                engine.begin_key_change(conn, caller).await?;
                let admins = count_admin_keys(conn, &scope).await?;
                let before = get_key(conn, &scope, id).await?.ok_or(Error::KeyNotFound(id))?;
                if before.revoked_at.is_some() {
                    return Ok(before);
                }
                revoke_key(conn, &scope, id).await?;
                if admins > 0 && count_admin_keys(conn, &scope).await? == 0 {
                    return Err(Error::LastAdminKey(id));
                }
                let entry = AuditEntry::about(AuditAction::KeyRevoked, id.0, json!({"name": before.name}));
                record_audit(conn, &scope, &entry).await?;
                get_key(conn, &scope, id).await?.ok_or(Error::KeyNotFound(id))
            })
        });
        let row = row.await?;
        self.after_key_change().await;
        Ok(row)
    }

    /// Changes how much may be published with a key. Requests that wait under it end early, without an error.
    pub async fn update_key(
        &self,
        scope: Scope,
        caller: Option<KeyHash>,
        id: KeyId,
        change: RateChange,
    ) -> Result<ListedKey, Error> {
        let engine = self.clone();
        let row = self.detached(async move {
            transaction!(engine, |conn| {
                engine.begin_key_change(conn, caller).await?;
                let before = get_key(conn, &scope, id).await?.ok_or(Error::KeyNotFound(id))?;
                if !before.is_in_use(engine.time()) {
                    return Err(Error::KeyNotInUse(id));
                }
                let Some(rate) = change.apply(before.rate()) else {
                    return Err(Error::invalid("publish_burst", "must not be given without publishes_per_second"));
                };
                if rate == before.rate() {
                    return Ok(before);
                }
                update_key_rate(conn, &scope, id, rate).await?;
                record_audit(conn, &scope, &key_updated(&before, rate)).await?;
                get_key(conn, &scope, id).await?.ok_or(Error::KeyNotFound(id))
            })
        });
        let row = row.await?;
        self.after_key_change().await;
        Ok(row)
    }

    /// Gives a key a new secret. The former ones stay good for `overlap_seconds`.
    pub async fn rotate_key(
        &self,
        scope: Scope,
        caller: Option<KeyHash>,
        id: KeyId,
        overlap_seconds: f64,
    ) -> Result<(ListedKey, ApiKey), Error> {
        let secret = ApiKey::generate().map_err(Error::Internal)?;
        let (engine, made) = (self.clone(), secret.clone());
        let row = self.detached(async move {
            transaction!(engine, |conn| {
                engine.begin_key_change(conn, caller).await?;
                let row = get_key(conn, &scope, id).await?.ok_or(Error::KeyNotFound(id))?;
                if !row.is_in_use(engine.time()) {
                    return Err(Error::KeyNotInUse(id));
                }
                let others = replace_key_secret(conn, &scope, id, &made, overlap_seconds).await?;
                if others >= limits::KEY_SECRETS && overlap_seconds > 0.0 {
                    return Err(Error::TooManySecrets(limits::KEY_SECRETS));
                }
                let detail = json!({"name": row.name, "overlap_seconds": overlap_seconds});
                record_audit(conn, &scope, &AuditEntry::about(AuditAction::KeyRotated, id.0, detail)).await?;
                get_key(conn, &scope, id).await?.ok_or(Error::KeyNotFound(id))
            })
        });
        let row = row.await?;
        self.after_key_change().await;
        Ok((row, secret))
    }

    /// Brings this server's keys up to date after a change of its own. Other servers have been notified.
    async fn after_key_change(&self) {
        if let Err(error) = self.refresh_keys().await {
            log::warn!("the keys could not be read again yet: {error}");
            self.keys().note_change();
        }
    }

    /// Records which keys were used since the last call. Returns their number. If that fails, the rest is recorded by the
    /// next call.
    pub async fn record_key_use(&self) -> Result<usize, Error> {
        let engine = self.clone();
        in_own_task(async move { engine.write_used_keys().await }).await
    }

    async fn write_used_keys(&self) -> Result<usize, Error> {
        let used = self.keys().take_used();
        let mut left = used.as_slice();
        while !left.is_empty() {
            let (keys, others) = left.split_at(left.len().min(ROWS_PER_STATEMENT));
            if let Err(error) = self.write_key_use(keys).await {
                self.keys().put_back_used(left);
                return Err(error);
            }
            left = others;
        }
        Ok(used.len())
    }

    async fn write_key_use(&self, keys: &[(NamespaceId, KeyId)]) -> Result<(), Error> {
        let mut conn = self.database().connection().await?;
        Ok(record_key_use(&mut conn, self.now(), keys).await?)
    }
}

/// Returns why a key was not stored.
async fn why_not_made(conn: &mut AsyncPgConnection, scope: &Scope, name: &str) -> Result<Error, Error> {
    Ok(match is_name_in_use(conn, scope, name).await? {
        true => Error::KeyNameTaken(name.to_owned()),
        false => Error::TooManyKeys(limits::API_KEYS),
    })
}

/// Returns the audit entry of a new key.
pub(crate) fn key_created(id: KeyId, new: &NewKey) -> AuditEntry {
    let detail = json!({
        "name": new.name, "scopes": new.scopes.names(), "tag_patterns": new.tag_patterns.as_ref().map(TagPatterns::as_slice),
        "expires_at": new.expires_at, "publishes_per_second": new.publishes_per_second, "publish_burst": new.publish_burst,
    });
    AuditEntry::about(AuditAction::KeyCreated, id.0, detail)
}

/// Returns the audit entry of a key whose rate was changed.
fn key_updated(before: &ListedKey, (per_second, burst): (Option<u32>, Option<u32>)) -> AuditEntry {
    let (former_per_second, former_burst) = before.rate();
    let mut changes = Map::new();
    for (name, from, to) in
        [("publishes_per_second", former_per_second, per_second), ("publish_burst", former_burst, burst)]
    {
        if from != to {
            changes.insert(name.to_owned(), json!({"from": from, "to": to}));
        }
    }
    AuditEntry::about(AuditAction::KeyUpdated, before.id.0, json!({"name": before.name, "changes": changes}))
}

fn unauthenticated(key: Option<KeyHash>) -> Error {
    Error::Unauthenticated(match key {
        Some(_) => "the key is not known",
        None => "send an API key: Authorization: Bearer wb_…",
    })
}
