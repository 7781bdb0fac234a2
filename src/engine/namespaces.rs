//! Namespaces: which one a name means, and how they are created and changed.
//!
//! Every request may name a namespace, and must not cost a statement for it. A name never changes its meaning and no
//! namespace is deleted, so what was found is remembered until the database is restored. A name that does not exist is
//! remembered only for [`FORGET_UNKNOWN_AFTER`], because it may be created on another server at any time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::domain::audit::{AuditAction, AuditEntry};
use crate::domain::ids::NamespaceId;
use crate::domain::json::RawJson;
use crate::domain::namespace::CHECKED_SETTINGS;
use crate::domain::scope::Scope;
use crate::error::Error;
use crate::store::lists::pages::NamePage;
use crate::store::tables::audit_log::record_audit;
use crate::store::tables::catalog::renew_generation;
use crate::store::tables::namespaces::{
    NamespaceRef, NamespaceRow, get_namespace, insert_namespace, list_namespaces, lock_namespace, update_namespace,
};

use crate::engine::{Engine, transaction};

/// The time for which a server remembers that a name does not exist.
const FORGET_UNKNOWN_AFTER: Duration = Duration::from_secs(1);

/// The maximum number of names that do not exist and are remembered. If there are more, all are forgotten.
const MAX_UNKNOWN_NAMES: usize = 1_000;

/// The maximum number of namespaces that administrators choose from. `GET /namespaces` has all.
const LISTED_NAMESPACES: usize = 100;

/// The time for which a server remembers the list of namespaces. Another server may have created one meanwhile.
const FORGET_LIST_AFTER: Duration = Duration::from_secs(5);

/// The first namespaces, in the order of their names.
#[derive(Debug, Default)]
pub struct NamespaceList {
    pub names: Vec<(NamespaceId, String)>,
    /// Whether these are all.
    pub is_whole: bool,
}

/// The names that this server has looked up. There are no more known ones than namespaces.
#[derive(Default)]
pub struct NamespaceNames(Mutex<Names>);

#[derive(Default)]
struct Names {
    known: HashMap<String, NamespaceId>,
    unknown: HashMap<String, Instant>,
    listed: Option<(Instant, Arc<NamespaceList>)>,
}

/// What a server remembers about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remembered {
    Exists(NamespaceId),
    /// It did not exist a moment ago.
    IsMissing,
    Nothing,
}

impl NamespaceNames {
    /// Returns what is remembered about a name.
    fn get(&self, name: &str) -> Remembered {
        let names = self.lock();
        if let Some(id) = names.known.get(name) {
            return Remembered::Exists(*id);
        }
        let is_recent = |at: &Instant| at.elapsed() < FORGET_UNKNOWN_AFTER;
        if names.unknown.get(name).is_some_and(is_recent) { Remembered::IsMissing } else { Remembered::Nothing }
    }

    fn remember(&self, name: &str, found: Option<NamespaceId>) {
        let mut names = self.lock();
        if let Some(id) = found {
            names.unknown.remove(name);
            names.known.insert(name.to_owned(), id);
            return;
        }
        if names.unknown.len() >= MAX_UNKNOWN_NAMES {
            names.unknown.clear();
        }
        names.unknown.insert(name.to_owned(), Instant::now());
    }

    /// Returns the list of namespaces, if it was read a moment ago.
    fn list(&self) -> Option<Arc<NamespaceList>> {
        let names = self.lock();
        let (at, list) = names.listed.as_ref()?;
        (at.elapsed() < FORGET_LIST_AFTER).then(|| list.clone())
    }

    /// Forgets all names, because the database continues from an earlier state.
    pub(crate) fn forget(&self) {
        *self.lock() = Names::default();
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Returns the namespace that a name means, if this server remembers it.
    pub fn known_namespace(&self, name: &str) -> Option<NamespaceId> {
        match self.namespace_names().get(name) {
            Remembered::Exists(id) => Some(id),
            Remembered::IsMissing | Remembered::Nothing => None,
        }
    }

    /// Returns the namespace that a name means.
    pub async fn find_namespace(&self, name: &str) -> Result<NamespaceId, Error> {
        let missing = || Error::NamespaceNotFound(name.to_owned());
        match self.namespace_names().get(name) {
            Remembered::Exists(id) => Ok(id),
            Remembered::IsMissing => Err(missing()),
            Remembered::Nothing => {
                let mut conn = self.database().connection().await?;
                let row = get_namespace(&mut conn, &NamespaceRef::Name(name.to_owned())).await?;
                let found = row.map(|row| row.id);
                self.namespace_names().remember(name, found);
                found.ok_or_else(missing)
            }
        }
    }

    /// Returns the first namespaces, for people to choose from. Every page shows them to administrators, so they are
    /// read once in [`FORGET_LIST_AFTER`].
    pub async fn listed_namespaces(&self) -> Result<Arc<NamespaceList>, Error> {
        if let Some(list) = self.namespace_names().list() {
            return Ok(list);
        }
        let page = NamePage { descending: false, after: None, limit: LISTED_NAMESPACES as i64 + 1 };
        let mut conn = self.database().connection().await?;
        let rows = list_namespaces(&mut conn, &page).await?;
        drop(conn);
        let is_whole = rows.len() <= LISTED_NAMESPACES;
        let names = rows.into_iter().take(LISTED_NAMESPACES).map(|row| (row.id, row.name)).collect();
        let list = Arc::new(NamespaceList { names, is_whole });
        self.namespace_names().lock().listed = Some((Instant::now(), list.clone()));
        Ok(list)
    }

    /// Creates a namespace with all that it needs.
    pub async fn create_namespace(&self, scope: Scope, name: String, settings: RawJson) -> Result<NamespaceRow, Error> {
        let engine = self.clone();
        self.detached(async move {
            let max = engine.settings().max_namespaces;
            let row = transaction!(engine, |conn| {
                if let Some(row) = insert_namespace(conn, &name, &settings, engine.now(), max).await? {
                    let detail = json!({"name": row.name, "settings": settings});
                    let entry = AuditEntry::about(AuditAction::NamespaceCreated, row.id.0, detail);
                    record_audit(conn, &scope, &entry).await?;
                    return Ok(row);
                }
                let taken = get_namespace(conn, &NamespaceRef::Name(name.clone())).await?;
                Err(taken.map_or(Error::TooManyNamespaces(max), |_| Error::NamespaceExists(name.clone())))
            })?;
            engine.namespace_names().remember(&row.name, Some(row.id));
            engine.namespace_names().lock().listed = None;
            log::info!(namespace_id = row.id, namespace = row.name.as_str(); "a namespace was created");
            Ok(row)
        })
        .await
    }

    /// Changes the settings of a namespace: those that are given, and no others.
    pub async fn update_namespace(
        &self,
        scope: Scope,
        wanted: NamespaceRef,
        settings: Map<String, Value>,
    ) -> Result<NamespaceRow, Error> {
        let engine = self.clone();
        let changes_checks = CHECKED_SETTINGS.iter().any(|name| settings.contains_key(*name));
        let updated = self.detached(async move {
            transaction!(engine, |conn| {
                let row = lock_namespace(conn, &wanted).await?.ok_or_else(|| not_found(&wanted))?;
                let unreadable = |error: serde_json::Error| Error::Internal(error.to_string());
                let mut merged: Map<String, Value> =
                    serde_json::from_str(row.settings.0.as_str()).map_err(unreadable)?;
                merged.extend(settings.clone());
                let merged = RawJson::of(&merged).map_err(unreadable)?;
                let detail = json!({"name": row.name, "settings": settings});
                let entry = AuditEntry::about(AuditAction::NamespaceUpdated, row.id.0, detail);
                record_audit(conn, &scope, &entry).await?;
                if changes_checks {
                    renew_generation(conn, &Scope { namespace: row.id, ..scope.clone() }).await?;
                }
                Ok(update_namespace(conn, row.id, &merged).await?)
            })
        });
        let row = updated.await?;
        if changes_checks {
            self.reload_after_change(row.id).await;
            self.limit_use().need_count();
        }
        Ok(row)
    }
}

/// Returns the error of a namespace that does not exist.
pub(crate) fn not_found(wanted: &NamespaceRef) -> Error {
    Error::NamespaceNotFound(match wanted {
        NamespaceRef::Id(id) => id.to_string(),
        NamespaceRef::Name(name) => name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_remembered_and_that_it_does_not_exist_only_briefly() {
        let names = NamespaceNames::default();
        assert_eq!(names.get("a"), Remembered::Nothing);
        names.remember("a", Some(NamespaceId(7)));
        names.remember("b", None);
        assert_eq!((names.get("a"), names.get("b")), (Remembered::Exists(NamespaceId(7)), Remembered::IsMissing));
        for at in names.lock().unknown.values_mut() {
            *at -= FORGET_UNKNOWN_AFTER;
        }
        assert_eq!((names.get("a"), names.get("b")), (Remembered::Exists(NamespaceId(7)), Remembered::Nothing));
        names.remember("b", Some(NamespaceId(8)));
        assert_eq!(names.get("b"), Remembered::Exists(NamespaceId(8)));
        names.forget();
        assert_eq!(names.get("a"), Remembered::Nothing);
    }

    #[test]
    fn names_that_do_not_exist_are_bounded() {
        let names = NamespaceNames::default();
        for number in 0..=MAX_UNKNOWN_NAMES * 2 {
            names.remember(&number.to_string(), None);
        }
        assert!(names.lock().unknown.len() <= MAX_UNKNOWN_NAMES);
    }
}
