//! New events are checked against the event types that their namespace declares.
//!
//! The check uses the snapshot against which the events are matched. The statement that stores them names the generation of
//! that snapshot, and stores nothing if it is not the present one. An event is therefore accepted only under the
//! declarations that hold when its statement begins: after a change is acknowledged, no server accepts an event that the
//! change forbids. Before an event is refused, the generation is compared with the database, so no server refuses an event
//! that the change allows, either.
//!
//! A namespace that declares nothing costs nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use crate::domain::event::NewEvent;
use crate::domain::event_type::declaration::TOO_MANY_STEPS;
use crate::domain::event_type::rejection::Rejection;
use crate::domain::event_type::schema::{EventSchema, Explainer, Steps};
use crate::domain::ids::NamespaceId;
use crate::domain::invalid::Invalid;
use crate::domain::json::RawJson;
use crate::domain::limits;
use crate::error::Error;

use crate::engine::Engine;
use crate::engine::publish::schema_cache::Compiled;
use crate::engine::publish::subscription_cache::SubscriptionSnapshot;
use crate::engine::publish::type_catalog::TypeCatalog;
use crate::engine::publish::{Publication, subscriptions_keep_changing};

/// The number of bytes of payloads that are checked on a thread that serves other requests.
const INLINE_BYTES: usize = 16 * 1024;

/// The number of steps that a check may take there. A check that needs more is repeated on a thread of its own.
const INLINE_STEPS: u64 = 10_000;

/// The number of times that events are checked before the publisher receives a retryable error.
const CHECKS: usize = 5;

/// The result of a check.
enum Checked {
    Accepted,
    Rejected(Vec<Rejection>),
    /// What the snapshot says is no longer in the database.
    Outdated,
}

impl Engine {
    /// Checks the events of one request. Returns the snapshot under which they are accepted.
    pub(super) async fn check_publication(
        &self,
        namespace: NamespaceId,
        events: &Publication,
        by: Instant,
    ) -> Result<Arc<SubscriptionSnapshot>, Error> {
        let snapshot = self.subscribers_of(namespace).await?;
        if snapshot.types().accepts_all() {
            return Ok(snapshot);
        }
        // Boxed, because every publish would carry its size.
        Box::pin(self.check_declared(namespace, snapshot, events, by)).await
    }

    async fn check_declared(
        &self,
        namespace: NamespaceId,
        mut snapshot: Arc<SubscriptionSnapshot>,
        events: &Publication,
        by: Instant,
    ) -> Result<Arc<SubscriptionSnapshot>, Error> {
        for _ in 0..CHECKS {
            match self.check_types(namespace, snapshot.types(), events, by).await? {
                Checked::Accepted => return Ok(snapshot),
                Checked::Rejected(rejections) => {
                    if self.is_current(&snapshot).await? {
                        return Err(Error::EventsRejected(rejections));
                    }
                }
                Checked::Outdated => {}
            }
            self.reload_subscribers(&[namespace]).await?;
            snapshot = self.subscribers_of(namespace).await?;
        }
        Err(subscriptions_keep_changing())
    }

    async fn check_types(
        &self,
        namespace: NamespaceId,
        types: &TypeCatalog,
        events: &Publication,
        by: Instant,
    ) -> Result<Checked, Error> {
        let mut rejections = refused_types(types, events);
        let digests = digests_of(types, events);
        if !digests.is_empty() {
            let Some(schemas) = self.schemas_of(namespace, &digests, by).await? else { return Ok(Checked::Outdated) };
            let schemas = SchemasByType::new(&digests, &schemas);
            if !is_accepted_inline(&schemas, events) {
                let events = events.clone();
                rejections.extend(self.on_deep_stack(namespace, by, move || find_rejections(&schemas, &events)).await?);
            }
        }
        rejections.sort_by_key(|rejection| rejection.index);
        Ok(if rejections.is_empty() { Checked::Accepted } else { Checked::Rejected(rejections) })
    }
}

/// Returns the events that are refused whatever their payload is.
fn refused_types(types: &TypeCatalog, events: &[NewEvent]) -> Vec<Rejection> {
    const REASON: &str = "is not declared, and this namespace accepts only declared types (strict_event_types)";
    let refused = events.iter().enumerate().filter(|(_, event)| types.refuses(event.event_type.as_deref()));
    refused.map(|(index, _)| Rejection { index, errors: vec![Invalid::new("event_type", REASON)] }).collect()
}

/// Returns the types of events that have a schema, each with its digest.
fn digests_of<'a>(types: &'a TypeCatalog, events: &'a [NewEvent]) -> BTreeMap<&'a str, &'a str> {
    let types = events.iter().filter_map(|event| {
        let event_type = event.event_type.as_deref();
        Some((event_type?, types.digest_of(event_type)?))
    });
    types.collect()
}

/// The compiled schemas of the types of some events.
struct SchemasByType(HashMap<String, Arc<EventSchema>>);

impl SchemasByType {
    fn new(digests: &BTreeMap<&str, &str>, schemas: &Compiled) -> Self {
        let schema = |(name, digest): (&&str, &&str)| Some(((*name).to_owned(), schemas.get(*digest)?.clone()));
        SchemasByType(digests.iter().filter_map(schema).collect())
    }

    /// Returns the events that have a schema, with their positions, their schemas and their payloads.
    fn checks<'a>(&'a self, events: &'a [NewEvent]) -> impl Iterator<Item = (usize, &'a EventSchema, &'a str)> {
        events.iter().enumerate().filter_map(|(index, event)| {
            let schema = self.0.get(event.event_type.as_deref()?)?;
            Some((index, schema.as_ref(), event.payload.as_ref().map_or("null", RawJson::as_str)))
        })
    }
}

/// Returns whether all events are accepted, as far as little work shows.
fn is_accepted_inline(schemas: &SchemasByType, events: &[NewEvent]) -> bool {
    if schemas.checks(events).map(|(_, _, payload)| payload.len()).sum::<usize>() > INLINE_BYTES {
        return false;
    }
    let mut steps = Steps::of(INLINE_STEPS);
    schemas.checks(events).all(|(_, schema, payload)| {
        schema.fits_any_stack(payload)
            && serde_json::from_str::<Value>(payload)
                .is_ok_and(|payload| schema.check(&payload, &mut steps) == Ok(true))
    })
}

/// Returns the events that do not satisfy their schemas. Needs a deep stack.
fn find_rejections(schemas: &SchemasByType, events: &[NewEvent]) -> Vec<Rejection> {
    let bytes: usize = schemas.checks(events).map(|(_, _, payload)| payload.len()).sum();
    let mut steps = Steps::of(limits::SCHEMA_STEPS + bytes as u64);
    let mut explainers: HashMap<*const EventSchema, Explainer<'_>> = HashMap::new();
    let mut explaining = Steps::of(limits::SCHEMA_STEPS);
    let mut rejections = Vec::new();
    let mut listed = 0;
    for (index, schema, payload) in schemas.checks(events) {
        let errors = match serde_json::from_str::<Value>(payload) {
            Err(error) => vec![Invalid::new("payload", format!("cannot be checked against the schema: {error}"))],
            Ok(payload) => match schema.check(&payload, &mut steps) {
                Ok(true) => continue,
                // A response lists about a thousand mistakes, and names every event that has one.
                Ok(false) if listed < limits::BATCH => {
                    let explainer =
                        explainers.entry(std::ptr::from_ref(schema)).or_insert_with(|| Explainer::new(schema));
                    let mistakes = explainer.explain(&payload, &mut explaining);
                    mistakes.iter().map(|mistake| mistake.for_publisher("payload")).collect()
                }
                Ok(false) => vec![Invalid::new("payload", "does not satisfy the schema")],
                Err(_) => vec![Invalid::new("payload", TOO_MANY_STEPS)],
            },
        };
        listed += errors.len();
        rejections.push(Rejection { index, errors });
        if steps.are_used_up() {
            break;
        }
    }
    rejections
}
