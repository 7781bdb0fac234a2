//! Event types are declared, changed and deleted.
//!
//! Each change gives the catalog of the namespace a new generation, as a change of a subscription does: no server goes on
//! accepting events under what was declared before. A new schema is checked first against the latest events of the type,
//! outside of the transaction, because that may take a second. Events that are stored in the meantime are not checked.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::domain::audit::AuditAction::{EventTypeCreated, EventTypeDeleted, EventTypeUpdated};
use crate::domain::audit::AuditEntry;
use crate::domain::event_type::declaration::{Declaration, digest};
use crate::domain::event_type::rejection::{RecentEvents, RecentRejection};
use crate::domain::event_type::schema::{EventSchema, Explainer, Steps};
use crate::domain::expected_version::ExpectedVersion;
use crate::domain::ids::NamespaceId;
use crate::domain::json::RawJson;
use crate::domain::limits;
use crate::domain::redaction::Redaction;
use crate::domain::scope::Scope;
use crate::error::{Error, OutageKind};
use crate::store::tables::audit_log::record_audit;
use crate::store::tables::catalog::renew_generation;
use crate::store::tables::event_types::{
    EventTypeRow, EventTypeState, RecentEvent, count_event_types, delete_event_type, get_event_type, insert_event_type,
    keep_event_type_version, list_recent_events, lock_event_type, update_event_type,
};

use crate::engine::publish::matching::MATCH_WITHIN;
use crate::engine::{Engine, transaction};

/// The number of times that a declaration is made again because the type was changed meanwhile.
const PUTS: usize = 5;

/// A declaration that a client sends.
#[derive(Debug, Clone)]
pub(crate) struct EventTypePut {
    pub name: String,
    pub declaration: Declaration,
    pub expected: ExpectedVersion,
    /// Whether the schema may reject recent events.
    pub force: bool,
    /// What the client may not learn of these events.
    pub redaction: Redaction,
}

/// The result of a declaration.
#[derive(Debug)]
pub(crate) struct PutEventType {
    pub row: EventTypeRow,
    pub is_new: bool,
    /// What the schema does to the latest events, if it has changed.
    pub recent: RecentEvents,
}

impl Engine {
    /// Declares an event type, or changes what is declared.
    pub(crate) async fn put_event_type(&self, scope: Scope, put: EventTypePut) -> Result<PutEventType, Error> {
        let by = Instant::now() + MATCH_WITHIN;
        let put = Arc::new(put);
        let compiled = self.compile(scope.namespace, &put, by).await?;
        for _ in 0..PUTS {
            let mut conn = self.database().connection().await?;
            let before = get_event_type(&mut conn, &scope, &put.name).await?;
            drop(conn);
            check_revision(&put.name, before.as_ref(), &put.expected)?;
            if let Some(row) = before.as_ref().filter(|row| is_same(row, &put.declaration)) {
                return Ok(PutEventType { row: row.clone(), is_new: false, recent: RecentEvents::default() });
            }
            let recent = self.check_recent_events(&scope, &put, before.as_ref(), compiled.as_ref(), by).await?;
            if before.is_some() && recent.rejected > 0 && !put.force {
                return Err(Error::SchemaRejectsRecentEvents(recent));
            }
            let is_new = before.is_none();
            if let Some(row) = self.store_event_type(scope.clone(), put.clone(), before, recent.rejected).await? {
                self.reload_after_change(scope.namespace).await;
                return Ok(PutEventType { row, is_new, recent });
            }
        }
        Err(Error::outage(OutageKind::Conflict, "the event type keeps changing"))
    }

    /// Removes an event type. Its events stay, and new ones are not checked any more.
    pub async fn delete_event_type(&self, scope: Scope, name: String, expected: ExpectedVersion) -> Result<(), Error> {
        let (engine, namespace) = (self.clone(), scope.namespace);
        let deleted = self.detached(async move {
            transaction!(engine, |conn| {
                renew_generation(conn, &scope).await?;
                let row = lock_event_type(conn, &scope, &name).await?;
                let row = row.ok_or_else(|| Error::EventTypeNotFound(name.clone()))?;
                check_revision(&name, Some(&row), &expected)?;
                delete_event_type(conn, &scope, &name).await?;
                let detail = json!({"name": name, "version": row.version});
                record_audit(conn, &scope, &AuditEntry::about(EventTypeDeleted, row.id, detail)).await?;
                Ok(())
            })
        });
        deleted.await?;
        self.reload_after_change(namespace).await;
        Ok(())
    }

    /// Compiles the schema of a declaration and checks its examples.
    async fn compile(
        &self,
        namespace: NamespaceId,
        put: &Arc<EventTypePut>,
        by: Instant,
    ) -> Result<Option<Arc<EventSchema>>, Error> {
        let declaration = put.declaration.clone();
        let compiled =
            self.on_deep_stack(namespace, by, move || declaration.compile()).await?.map_err(Error::Invalid)?;
        let compiled = compiled.map(Arc::new);
        if let (Some(schema), Some(text)) = (&compiled, put.declaration.schema()) {
            self.schema_cache().insert(digest(text), schema.clone());
        }
        Ok(compiled)
    }

    /// Checks the latest events of a type against its new schema, if it is another one.
    async fn check_recent_events(
        &self,
        scope: &Scope,
        put: &EventTypePut,
        before: Option<&EventTypeRow>,
        schema: Option<&Arc<EventSchema>>,
        by: Instant,
    ) -> Result<RecentEvents, Error> {
        let (Some(schema), Some(text)) = (schema.cloned(), put.declaration.schema()) else {
            return Ok(RecentEvents::default());
        };
        if before.and_then(|row| row.schema_digest.clone()) == Some(digest(text)) {
            return Ok(RecentEvents::default());
        }
        let mut conn = self.database().connection().await?;
        let (rows, bytes) = (limits::RECENT_EVENTS, limits::RECENT_EVENTS_BYTES);
        let events = list_recent_events(&mut conn, scope, &put.name, rows, bytes).await?;
        drop(conn);
        let redaction = put.redaction.clone();
        self.on_deep_stack(scope.namespace, by, move || check_all(&schema, &events, &redaction)).await
    }

    /// Checks the latest events of a type against its present schema, for somebody who may not learn what `redaction`
    /// hides. Without a schema, none is checked.
    pub(crate) async fn check_events_of(
        &self,
        scope: &Scope,
        row: &EventTypeRow,
        redaction: Redaction,
    ) -> Result<RecentEvents, Error> {
        let Some(schema) = &row.schema else { return Ok(RecentEvents::default()) };
        let by = Instant::now() + MATCH_WITHIN;
        let mut conn = self.database().connection().await?;
        let (rows, bytes) = (limits::RECENT_EVENTS, limits::RECENT_EVENTS_BYTES);
        let events = list_recent_events(&mut conn, scope, &row.name, rows, bytes).await?;
        drop(conn);
        let text = schema.0.as_str().to_owned();
        let check = move || {
            let schema: Value = serde_json::from_str(&text).map_err(|error| Error::Internal(error.to_string()))?;
            Ok(check_all(&EventSchema::parse(&schema).map_err(Error::Invalid)?, &events, &redaction))
        };
        self.on_deep_stack(scope.namespace, by, check).await?
    }

    /// Stores a declaration. Returns `None` and stores nothing if the type is no longer as it was before.
    async fn store_event_type(
        &self,
        scope: Scope,
        put: Arc<EventTypePut>,
        before: Option<EventTypeRow>,
        rejected: usize,
    ) -> Result<Option<EventTypeRow>, Error> {
        let engine = self.clone();
        let stored = self.detached(async move {
            let max = engine.settings().max_event_types;
            let schema_digest = put.declaration.schema().map(digest);
            let nothing = RawJson::of(&[(); 0]).map_err(|error| Error::Internal(error.to_string()))?;
            transaction!(engine, |conn| {
                renew_generation(conn, &scope).await?;
                let present = lock_event_type(conn, &scope, &put.name).await?;
                let revision = |row: &EventTypeRow| (row.id, row.revision);
                if present.as_ref().map(revision) != before.as_ref().map(revision) {
                    return Ok(None);
                }
                if present.is_none() && count_event_types(conn, &scope).await? >= max {
                    return Err(Error::TooManyEventTypes(max));
                }
                let state = EventTypeState {
                    name: &put.name,
                    description: put.declaration.description.as_deref(),
                    schema: put.declaration.schema().zip(schema_digest.as_deref()),
                    examples: put.declaration.examples().unwrap_or(&nothing),
                };
                let row = match &present {
                    Some(_) => update_event_type(conn, &scope, &state).await?,
                    // The row lock of the catalog keeps others from declaring it at the same time.
                    None => insert_event_type(conn, &scope, &state).await?.ok_or(diesel::NotFound)?,
                };
                let changed = present.as_ref().map(|present| changes(present, &row));
                if changed.as_ref().is_none_or(|changed| changed.contains(&"schema")) {
                    keep_event_type_version(conn, &scope, &row, limits::SCHEMA_VERSIONS as i32).await?;
                }
                let detail = json!({
                    "name": row.name, "version": row.version, "changes": changed, "rejected_recent_events": rejected,
                });
                let action = if present.is_some() { EventTypeUpdated } else { EventTypeCreated };
                record_audit(conn, &scope, &AuditEntry::about(action, row.id, detail)).await?;
                Ok(Some(row))
            })
        });
        stored.await
    }
}

/// Returns an error if the present revision of an event type is not one that the client expects.
fn check_revision(name: &str, row: Option<&EventTypeRow>, expected: &ExpectedVersion) -> Result<(), Error> {
    let is_expected = match row {
        Some(row) => expected.includes(row.revision),
        None => *expected == ExpectedVersion::Any,
    };
    let mismatch = || Error::RevisionMismatch { name: name.to_owned(), revision: row.map(|row| row.revision) };
    if is_expected { Ok(()) } else { Err(mismatch()) }
}

/// Returns whether a declaration changes nothing.
fn is_same(row: &EventTypeRow, declaration: &Declaration) -> bool {
    let examples = declaration.examples().map_or("[]", RawJson::as_str);
    row.description == declaration.description
        && row.schema.as_ref().map(|schema| schema.0.as_str()) == declaration.schema().map(RawJson::as_str)
        && row.examples.0.as_str() == examples
}

/// Returns the names of the fields that differ.
fn changes(before: &EventTypeRow, after: &EventTypeRow) -> Vec<&'static str> {
    let differs = [
        ("description", before.description != after.description),
        ("schema", before.schema_digest != after.schema_digest),
        ("examples", before.examples.0 != after.examples.0),
    ];
    differs.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
}

/// Checks stored events against a schema. Needs a deep stack.
///
/// The whole payloads count, because the schema will reject more like them. What is wrong with them is said only of
/// values that are not redacted. An event of which nothing can be said is counted and not named.
fn check_all(schema: &EventSchema, events: &[RecentEvent], redaction: &Redaction) -> RecentEvents {
    let mut steps = Steps::of(limits::SCHEMA_STEPS + limits::RECENT_EVENTS_BYTES as u64);
    let (mut explainer, mut explaining) = (Explainer::new(schema), Steps::of(limits::SCHEMA_STEPS));
    let mut recent = RecentEvents::default();
    for event in events {
        recent.checked += 1;
        // A payload that cannot be parsed would be refused as well.
        let payload = event.payload.as_ref().map_or("null", |payload| payload.0.as_str());
        let payload: Option<Value> = serde_json::from_str(payload).ok();
        if payload.as_ref().is_some_and(|payload| schema.check(payload, &mut steps) == Ok(true)) {
            continue;
        }
        recent.rejected += 1;
        if recent.rejections.len() < limits::RECENT_EVENTS_SHOWN {
            let mut mistakes = explainer.explain(&payload.unwrap_or_default(), &mut explaining);
            mistakes.retain(|mistake| !mistake.is_redacted(redaction));
            if !mistakes.is_empty() {
                recent.rejections.push(RecentRejection::new(event.id, &mistakes));
            }
        }
    }
    recent
}
