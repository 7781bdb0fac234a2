//! Stores published events with their deliveries, and reads events.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::prelude::{
    BoolExpressionMethods, ExpressionMethods, JoinOnDsl, OptionalExtension, QueryDsl, SelectableHelper,
};
use diesel::sql_types::{Array, BigInt, Double, Integer, Json, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::event::NewEvent;
use crate::domain::ids::{EventId, SubscriptionId};
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::store::connection::cached::CachedExt;
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
}

impl StoredEvent {
    /// Returns the first state of the event. Without workers and subscribers, it has nothing left to do.
    pub fn status(&self, new: &NewEvent) -> Status {
        let is_done = new.tags.is_empty() && self.enqueued == 0;
        if is_done { Status::Completed } else { Status::Pending }
    }
}

/// The pushes of events that are published together, as matched against the server's snapshot of the
/// subscriptions.
#[derive(Debug, Default)]
pub struct FanOut {
    /// The generation of the snapshot.
    pub generation: i64,
    /// The subscriptions that receive any of the events, each once, with the matched version.
    pub subscriptions: Vec<(SubscriptionId, i32)>,
    /// The pushes, in the order of the events.
    pub pushes: Vec<Push>,
    /// Subscriptions whose filter exceeded its budget for some of the events, once per request.
    pub over_budget: Vec<OverBudget>,
}

impl FanOut {
    /// Appends the pushes of further events, the first of which has the index `first_event`. Both must
    /// have been matched against the same snapshot.
    pub fn append(&mut self, other: &FanOut, first_event: usize) {
        let push = |push: &Push| Push { event: push.event + first_event, ..push.clone() };
        self.pushes.extend(other.pushes.iter().map(push));
        let over = |over: &OverBudget| OverBudget { last_event: over.last_event + first_event, ..*over };
        self.over_budget.extend(other.over_budget.iter().map(over));
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
    pub subscription_id: SubscriptionId,
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
    pub subscription_id: SubscriptionId,
    pub max_attempts: i32,
    pub ordering_key: Option<String>,
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
}

#[derive(QueryableByName)]
struct FannedOut {
    #[diesel(embed)]
    event: StoredEvent,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    first_push_due_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Array<Nullable<BigInt>>>)]
    push_seqs: Option<Vec<Option<i64>>>,
}

/// The statement behind [`publish_events`] for events without pushes, public for the cost tests.
pub const PUBLISH_EVENTS: Statement = statement!("publish_events");

/// The statement behind [`publish_events`] for events with pushes, public for the cost tests.
pub const PUBLISH_AND_FAN_OUT: Statement = statement!("publish_and_fan_out");

/// Stores events and their pushes, in the order given. Stores nothing and returns `None` if the
/// subscriptions have changed since they were matched.
pub async fn publish_events(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    new: &[&NewEvent],
    fan_out: &FanOut,
) -> QueryResult<Option<Published>> {
    if !fan_out.pushes.is_empty() {
        return publish_and_fan_out(conn, scope, new, fan_out).await;
    }
    let events: Vec<StoredEvent> =
        bind_events!(PUBLISH_EVENTS.query(), scope, new, fan_out.generation).cached().load(conn).await?;
    Ok((events.len() == new.len()).then_some(Published { events, push_seqs: Vec::new(), first_push_due_at: None }))
}

async fn publish_and_fan_out(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    new: &[&NewEvent],
    fan_out: &FanOut,
) -> QueryResult<Option<Published>> {
    let pushes = &fan_out.pushes;
    let rows: Vec<FannedOut> = bind_events!(PUBLISH_AND_FAN_OUT.query(), scope, new, fan_out.generation)
        .bind::<Array<BigInt>, _>(fan_out.subscriptions.iter().map(|(id, _)| *id).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(fan_out.subscriptions.iter().map(|(_, version)| *version).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(count_pushes_by_event(new.len(), pushes))
        .bind::<Array<Integer>, _>(pushes.iter().map(|push| push.event as i32 + 1).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(pushes.iter().map(|push| push.subscription_id).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(pushes.iter().map(|push| push.max_attempts).collect::<Vec<_>>())
        .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null(&pushes.iter().collect::<Vec<_>>(), |push| {
            push.ordering_key.as_deref()
        }))
        .cached()
        .load(conn)
        .await?;
    if rows.len() != new.len() {
        return Ok(None);
    }
    let first_push_due_at = rows.iter().find_map(|row| row.first_push_due_at);
    let (events, seqs): (Vec<_>, Vec<_>) = rows.into_iter().map(|row| (row.event, row.push_seqs)).unzip();
    Ok(Some(Published { events, push_seqs: seqs.into_iter().flatten().flatten().collect(), first_push_due_at }))
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
        .first(conn)
        .await
        .optional()
}

/// An event with what is read only if it was cancelled.
#[derive(Debug)]
pub struct EventDetails {
    pub row: EventRow,
    /// The reason for which it was cancelled or is being cancelled, if one was given.
    pub cancel_reason: Option<String>,
}

/// Returns an event with its details, or `None` if there is none.
pub async fn get_event_details(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: EventId,
) -> QueryResult<Option<EventDetails>> {
    let Some(row) = get_event(conn, scope, id).await? else { return Ok(None) };
    let cancel_reason = match row.work.cancel_requested || row.work.status.0 == Status::Cancelled {
        true => deliveries::table
            .find((scope.namespace, id))
            .select(deliveries::cancel_reason)
            .first(conn)
            .await
            .optional()?
            .flatten(),
        false => None,
    };
    Ok(Some(EventDetails { row, cancel_reason }))
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
