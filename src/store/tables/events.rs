//! Stores published events with their deliveries, and reads events.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{
    BoolExpressionMethods, ExpressionMethods, JoinOnDsl, OptionalExtension, QueryDsl, SelectableHelper,
};
use diesel::prelude::{Queryable, QueryableByName, Selectable};
use diesel::sql_types::{Array, BigInt, Bool, Bytea, Double, Integer, Json, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::event::NewEvent;
use crate::domain::idempotency::IdempotencyKey;
use crate::domain::ids::{EventId, LeaseId, NamespaceId, SubscriptionId, SubscriptionKey};
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::{Statement, statement};
use crate::store::tables::columns::JsonParameter;
use crate::store::tables::event_columns::{EventRow, bind_events, delay, large_payload, own_json, run_at};
use crate::store::tables::schema::{deliveries, events};

/// The number of bytes above which a payload's size is stored, so that claims can limit the bytes they
/// return. A smaller payload counts as this size.
pub const LARGE_PAYLOAD: usize = 4 * 1024;

/// The values that the database assigned to a published event.
#[derive(Debug, Clone, QueryableByName)]
pub struct StoredEvent {
    #[diesel(sql_type = BigInt)]
    pub id: EventId,
    #[diesel(sql_type = Timestamptz)]
    pub created_at: DateTime<Utc>,
    /// The earliest time at which it may run, if one was given.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub run_at: Option<DateTime<Utc>>,
    /// `run_at`, if it is in the future.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub due_at: Option<DateTime<Utc>>,
    /// The event's seq in `ready`, if it can be claimed at once.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub ready_seq: Option<i64>,
    /// The number of pushes that were created for the event.
    #[diesel(sql_type = Integer)]
    pub enqueued: i32,
    /// Whether it was stored now. Otherwise it was published before, or its request was refused.
    #[diesel(sql_type = Bool)]
    pub is_stored: bool,
    /// Whether it was published before, under the same idempotency key. Then `id` and `created_at` are those of then,
    /// and nothing else is known.
    #[diesel(sql_type = Bool)]
    pub is_repeated: bool,
    /// Whether it had another content then.
    #[diesel(sql_type = Bool)]
    pub is_reused: bool,
    /// The fingerprint of then.
    #[diesel(sql_type = Nullable<Bytea>)]
    pub known_fingerprint: Option<Vec<u8>>,
}

impl StoredEvent {
    /// Returns an event that was published before, under the same idempotency key and with the same content.
    pub fn known(id: EventId, created_at: DateTime<Utc>) -> Self {
        StoredEvent {
            id,
            created_at,
            run_at: None,
            due_at: None,
            ready_seq: None,
            enqueued: 0,
            is_stored: false,
            is_repeated: true,
            is_reused: false,
            known_fingerprint: None,
        }
    }

    /// Returns what another publisher with the same key, in the same batch, has published.
    pub fn repeated(&self, has_same_content: bool) -> Self {
        StoredEvent { is_reused: !has_same_content, ..StoredEvent::known(self.id, self.created_at) }
    }

    /// Returns the first state of the event. Without workers and subscribers, it has nothing left to do. An event
    /// that was handed over counts as pending: its publisher need not know whether a worker waited for it.
    pub fn status(&self, new: &NewEvent) -> Status {
        let is_done = new.tags.is_empty() && self.enqueued == 0;
        if is_done { Status::Completed } else { Status::Pending }
    }
}

/// A new event and the namespace to publish it in.
#[derive(Debug, Clone, Copy)]
pub struct NamespacedEvent<'a> {
    pub namespace: NamespaceId,
    pub event: &'a NewEvent,
    /// The number of its request in the batch.
    pub request: i32,
}

/// The pushes of events that are published together, as matched against the server's snapshots of the
/// subscriptions.
#[derive(Debug, Default)]
pub struct FanOut {
    /// The generation of the snapshot of each namespace.
    pub generations: BTreeMap<NamespaceId, i64>,
    /// The subscriptions that receive any of the events, each once and in the order of their keys, with the matched
    /// version.
    pub subscriptions: Vec<(SubscriptionKey, i32)>,
    /// The pushes, in the order of the events.
    pub pushes: Vec<Push>,
    /// Subscriptions whose filter exceeded its budget for some of the events, once per request.
    pub over_budget: Vec<OverBudget>,
}

impl FanOut {
    /// Appends the pushes of further events, the first of which has the index `first_event`. Events of the same
    /// namespace must have been matched against the same snapshot.
    pub fn append(&mut self, other: &FanOut, first_event: usize) {
        self.generations.extend(&other.generations);
        let push = |push: &Push| Push { event: push.event + first_event, ..push.clone() };
        self.pushes.extend(other.pushes.iter().map(push));
        let over = |over: &OverBudget| OverBudget { last_event: over.last_event + first_event, ..*over };
        self.over_budget.extend(other.over_budget.iter().map(over));
        self.add_subscriptions(other);
    }

    /// Appends the pushes of those events that have a number in `numbers`, which becomes their index.
    pub fn append_some(&mut self, other: &FanOut, numbers: &[Option<usize>]) {
        self.generations.extend(&other.generations);
        let push = |push: &Push| Some(Push { event: numbers[push.event]?, ..push.clone() });
        self.pushes.extend(other.pushes.iter().filter_map(push));
        let over = |over: &OverBudget| Some(OverBudget { last_event: numbers[over.last_event]?, ..*over });
        self.over_budget.extend(other.over_budget.iter().filter_map(over));
        self.add_subscriptions(other);
    }

    fn add_subscriptions(&mut self, other: &FanOut) {
        if !other.subscriptions.is_empty() {
            self.subscriptions.extend(&other.subscriptions);
            self.subscriptions.sort_unstable();
            self.subscriptions.dedup();
        }
    }
}

/// A subscription whose filter exceeded its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    pub subscription: SubscriptionKey,
    /// The number of events of one request for which it did.
    pub events: i64,
    /// The index of the last of these events.
    pub last_event: usize,
}

/// A push of one event to one subscription.
#[derive(Debug, Clone)]
pub struct Push {
    /// The index of the event among those published together.
    pub event: usize,
    /// The subscription, in the namespace of the event.
    pub subscription_id: SubscriptionId,
    pub max_attempts: i32,
    pub ordering_key: Option<String>,
}

/// A worker that waits for an event, and the lease that it asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipient {
    pub worker_id: String,
    pub lease_seconds: f64,
}

/// The lease of an event that was stored as claimed by the worker that waited for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandedOver {
    pub lease_id: LeaseId,
    pub lease_expires_at: DateTime<Utc>,
}

/// The stored events and pushes.
#[derive(Debug)]
pub struct Published {
    /// The events, in the order given.
    pub events: Vec<StoredEvent>,
    /// The seq of each push in `ready`, in the order of the pushes. `None` for a push that is not ready.
    pub push_seqs: Vec<Option<i64>>,
    /// The earliest time at which a push becomes due, if any waits for a due time.
    pub first_push_due_at: Option<DateTime<Utc>>,
    /// The lease of each event that was handed over. Empty if there were no recipients.
    pub handed_over: Vec<Option<HandedOver>>,
}

#[derive(QueryableByName)]
struct FannedOut {
    #[diesel(embed)]
    event: StoredEvent,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    first_push_due_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Array<Nullable<BigInt>>>)]
    push_seqs: Option<Vec<Option<i64>>>,
    #[diesel(sql_type = Nullable<BigInt>)]
    lease_id: Option<LeaseId>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    lease_expires_at: Option<DateTime<Utc>>,
}

impl FannedOut {
    fn handed_over(&self) -> Option<HandedOver> {
        Some(HandedOver { lease_id: self.lease_id?, lease_expires_at: self.lease_expires_at? })
    }
}

/// The statement behind [`publish_events`] for events without pushes, public for the cost tests.
pub const PUBLISH_EVENTS: Statement = statement!("publish_events");

/// The statement behind [`publish_events`] for events with new idempotency keys, public for the cost tests.
pub const PUBLISH_KEYED_EVENTS: Statement = statement!("publish_keyed_events");

/// The statement behind [`publish_events`] for events with pushes or recipients, public for the cost tests.
pub const PUBLISH_AND_FAN_OUT: Statement = statement!("publish_and_fan_out");

/// Binds the idempotency keys of events.
macro_rules! bind_keys {
    ($query:expr, $new:expr, $seconds:expr) => {
        $query
            .bind::<Nullable<Array<Nullable<BigInt>>>, _>(of_keys($new, |key| key.origin.number()))
            .bind::<Nullable<Array<Nullable<Text>>>, _>(of_keys($new, |key| key.key.as_str()))
            .bind::<Nullable<Array<Nullable<Bytea>>>, _>(of_keys($new, |key| key.fingerprint.as_slice()))
            .bind::<Nullable<Array<Nullable<Double>>>, _>(column_or_null($new, |event| {
                event.idempotency_key.as_ref().filter(|key| !key.origin.lives_with_event()).map(|_| $seconds)
            }))
    };
}

/// How idempotency keys are stored.
#[derive(Debug, Clone, Copy)]
pub struct KeyRule {
    /// For how long they are kept, in seconds.
    pub seconds: f64,
    /// Whether all of them are taken to be new. If one is not, the statement fails ([`is_taken_key`]) and stores nothing.
    pub are_new: bool,
}

/// Returns whether a statement has failed because an idempotency key was not new.
pub fn is_taken_key(error: &diesel::result::Error) -> bool {
    use diesel::result::{DatabaseErrorKind::UniqueViolation, Error::DatabaseError};
    matches!(error, DatabaseError(UniqueViolation, info) if info.constraint_name() == Some("idempotency_keys_pkey"))
}

/// Stores events and their pushes, in the order given. Stores nothing and returns `None` if the
/// subscriptions have changed since they were matched. An event with a recipient is stored as claimed by it, if
/// it can be claimed. `recipients` has an element for each event, or is empty. No idempotency key may come twice.
pub async fn publish_events(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    new: &[NamespacedEvent<'_>],
    fan_out: &FanOut,
    recipients: &[Option<Arc<Recipient>>],
    keys: KeyRule,
) -> QueryResult<Option<Published>> {
    let has_keys = new.iter().any(|new| new.event.idempotency_key.is_some());
    // Most publications have nothing of that, and a statement that inserts into fewer tables takes less time.
    if (has_keys && !keys.are_new) || !fan_out.pushes.is_empty() || !recipients.is_empty() {
        return publish_and_fan_out(conn, now, new, fan_out, recipients, keys.seconds).await;
    }
    let (namespaces, new): (Vec<NamespaceId>, Vec<&NewEvent>) = columns(new);
    let events: Vec<StoredEvent> = if has_keys {
        let query = bind_events!(PUBLISH_KEYED_EVENTS.query(), now, fan_out.generations, namespaces, &new);
        bind_keys!(query, &new, keys.seconds).cached().load(conn).await?
    } else {
        let query = bind_events!(PUBLISH_EVENTS.query(), now, fan_out.generations, namespaces, &new);
        query.cached().load(conn).await?
    };
    Ok((events.len() == new.len()).then_some(Published {
        events,
        push_seqs: Vec::new(),
        first_push_due_at: None,
        handed_over: Vec::new(),
    }))
}

async fn publish_and_fan_out(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    new: &[NamespacedEvent<'_>],
    fan_out: &FanOut,
    recipients: &[Option<Arc<Recipient>>],
    key_seconds: f64,
) -> QueryResult<Option<Published>> {
    let requests: Vec<i32> = new.iter().map(|new| new.request).collect();
    let recipients: Vec<&Option<Arc<Recipient>>> = recipients.iter().collect();
    let FanOut { generations, subscriptions, pushes, .. } = fan_out;
    let (namespaces, new): (Vec<NamespaceId>, Vec<&NewEvent>) = columns(new);
    let query = bind_events!(PUBLISH_AND_FAN_OUT.query(), now, generations, namespaces, &new)
        .bind::<Array<Integer>, _>(subscriptions.iter().map(|(key, _)| key.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(subscriptions.iter().map(|(key, _)| key.id).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(subscriptions.iter().map(|(_, version)| *version).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(count_pushes_by_event(new.len(), pushes))
        .bind::<Array<Integer>, _>(pushes.iter().map(|push| push.event as i32 + 1).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(pushes.iter().map(|push| push.subscription_id).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(pushes.iter().map(|push| push.max_attempts).collect::<Vec<_>>())
        .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null(&pushes.iter().collect::<Vec<_>>(), |push| {
            push.ordering_key.as_deref()
        }))
        .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null(&recipients, |recipient| {
            recipient.as_ref().map(|recipient| recipient.worker_id.as_str())
        }))
        .bind::<Nullable<Array<Nullable<Double>>>, _>(column_or_null(&recipients, |recipient| {
            recipient.as_ref().map(|recipient| recipient.lease_seconds)
        }))
        .bind::<Array<Integer>, _>(requests);
    let rows: Vec<FannedOut> = bind_keys!(query, &new, key_seconds).cached().load(conn).await?;
    if rows.len() != new.len() {
        return Ok(None);
    }
    let first_push_due_at = rows.iter().find_map(|row| row.first_push_due_at);
    let handed_over = rows.iter().map(FannedOut::handed_over).collect();
    let (events, seqs): (Vec<_>, Vec<_>) = rows.into_iter().map(|row| (row.event, row.push_seqs)).unzip();
    let push_seqs = seqs.into_iter().flatten().flatten().collect();
    Ok(Some(Published { events, push_seqs, first_push_due_at, handed_over }))
}

/// Returns a column of the idempotency keys, or `None` if there are none.
fn of_keys<'a, V>(new: &[&'a NewEvent], pick: impl Fn(&'a IdempotencyKey) -> V) -> Option<Vec<Option<V>>> {
    column_or_null(new, |event| event.idempotency_key.as_ref().map(&pick))
}

fn columns<'a>(new: &[NamespacedEvent<'a>]) -> (Vec<NamespaceId>, Vec<&'a NewEvent>) {
    new.iter().map(|new| (new.namespace, new.event)).unzip()
}

fn count_pushes_by_event(events: usize, pushes: &[Push]) -> Vec<i32> {
    let mut counts = vec![0; events];
    for push in pushes {
        counts[push.event] += 1;
    }
    counts
}

/// All events with their own deliveries.
#[diesel::dsl::auto_type(no_type_alias)]
pub(super) fn work_of_events() -> _ {
    let own = deliveries::namespace_id.eq(events::namespace_id).and(deliveries::id.eq(events::id));
    events::table.inner_join(deliveries::table.on(own))
}

/// Returns an event and the state of its own delivery, or `None` if there is none.
pub async fn get_event(conn: &mut AsyncPgConnection, scope: &Scope, id: EventId) -> QueryResult<Option<EventRow>> {
    work_of_events()
        .filter(events::id.eq(id))
        .filter(events::namespace_id.eq(scope.namespace))
        .select(EventRow::as_select())
        .load_first(conn)
        .await
        .optional()
}

/// An event with what is read only of a single one.
#[derive(Debug)]
pub struct EventDetails {
    pub row: EventRow,
    /// The reason for which it was cancelled or is being cancelled, if one was given.
    pub cancel_reason: Option<String>,
    /// The name of the key that has asked for it, if it was known.
    pub cancel_actor: Option<String>,
    pub origin: EventOrigin,
}

/// Where an event came from.
#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = events, check_for_backend(diesel::pg::Pg))]
pub struct EventOrigin {
    pub idempotency_key: Option<String>,
    /// The name of the key or the source that it was published with.
    pub published_by: Option<String>,
    pub client_address: Option<String>,
}

/// Returns an event with its details, or `None` if there is none.
pub async fn get_event_details(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: EventId,
) -> QueryResult<Option<EventDetails>> {
    let Some(row) = get_event(conn, scope, id).await? else { return Ok(None) };
    let (cancel_reason, cancel_actor) = match row.work.cancel_requested || row.work.status.0 == Status::Cancelled {
        true => deliveries::table
            .find((scope.namespace, id))
            .select((deliveries::cancel_reason, deliveries::cancel_actor))
            .load_first(conn)
            .await
            .optional()?
            .unwrap_or_default(),
        false => (None, None),
    };
    let origin =
        events::table.find((scope.namespace, id)).select(EventOrigin::as_select()).load_first(conn).await.optional()?;
    // It may have been removed in between.
    Ok(origin.map(|origin| EventDetails { row, cancel_reason, cancel_actor, origin }))
}

/// Returns the values of a column, or `None` if no row has a value. Most events use few of the columns,
/// and binding a list of nulls has a cost.
pub(in crate::store) fn column_or_null<'a, R, V>(
    rows: &[&'a R],
    pick: impl Fn(&'a R) -> Option<V>,
) -> Option<Vec<Option<V>>> {
    let values: Vec<Option<V>> = rows.iter().map(|row| pick(row)).collect();
    values.iter().any(Option::is_some).then_some(values)
}
