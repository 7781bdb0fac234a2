//! Events: stored once, read often.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::prelude::{ExpressionMethods, JoinOnDsl, OptionalExtension, QueryDsl, SelectableHelper};
use diesel::sql_types::{Array, BigInt, Double, Integer, Json, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::event::{NewEvent, RunAt};
use crate::domain::ids::{EventId, SubscriptionId};
use crate::domain::json::RawJson;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};
use crate::store::tables::columns::{JsonColumn, JsonParameter};
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::schema::{deliveries, events};

/// Payloads of more bytes have their size on record, so that claims can bound what they hand out.
pub const LARGE_PAYLOAD: usize = 4 * 1024;

/// What the database added to a published event.
#[derive(Debug, Clone, QueryableByName)]
pub struct StoredEvent {
    /// Its id.
    #[diesel(sql_type = BigInt)]
    pub id: EventId,
    /// When it was stored.
    #[diesel(sql_type = Timestamptz)]
    pub created_at: DateTime<Utc>,
    /// When it may run, if it said.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub run_at: Option<DateTime<Utc>>,
    /// The same, if that is still to come.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub due_at: Option<DateTime<Utc>>,
    /// Its number in `ready`, if it can be claimed at once.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub ready_seq: Option<i64>,
    /// To how many subscriptions it will be pushed.
    #[diesel(sql_type = Integer)]
    pub enqueued: i32,
}

/// Who is to get what of the events that are published together, as the server's copy of the
/// subscriptions has it.
#[derive(Debug, Default)]
pub struct FanOut {
    /// Which copy that is.
    pub generation: i64,
    /// The subscriptions that get anything, each once, with the version that was matched.
    pub subscriptions: Vec<(SubscriptionId, i32)>,
    /// What they get, in the order of the events.
    pub pushes: Vec<Push>,
    /// Subscriptions whose filter exceeded its budget for some of the events, once per request.
    pub over_budget: Vec<OverBudget>,
}

impl FanOut {
    /// Adds who gets further events, of which the first has this index. Both must have been matched
    /// against the same copy.
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
    /// The subscription.
    pub subscription_id: SubscriptionId,
    /// For how many events of a request.
    pub events: i64,
    /// The index of the last of them.
    pub last_event: usize,
}

/// One subscription gets one event.
#[derive(Debug, Clone)]
pub struct Push {
    /// The event's index among those published together.
    pub event: usize,
    /// Who gets it.
    pub subscription_id: SubscriptionId,
    /// Attempts in all.
    pub max_attempts: i32,
    /// Behind which key it queues, if it does.
    pub ordering_key: Option<String>,
}

/// What was stored.
#[derive(Debug)]
pub struct Published {
    /// The events, in the order given.
    pub events: Vec<StoredEvent>,
    /// The numbers in `ready` of the pushes, in their order; none for those that wait.
    pub push_seqs: Vec<Option<i64>>,
    /// When the first push falls due, if any waits for that.
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

/// The statement behind [`publish_events`] for events that nobody subscribed to, for those who
/// measure it.
pub const PUBLISH_EVENTS: Statement = statement!("publish_events");

/// The same for events that are pushed.
pub const PUBLISH_AND_FAN_OUT: Statement = statement!("publish_and_fan_out");

/// Binds what both statements take first; each bind is another type, so it cannot be a function.
macro_rules! bind_events {
    ($query:expr, $scope:expr, $new:expr, $generation:expr) => {
        $query
            .bind::<Integer, _>($scope.namespace)
            .bind::<Nullable<Timestamptz>, _>($scope.now)
            .bind::<Array<Text>, _>($new.iter().map(|e| e.title.as_str()).collect::<Vec<_>>())
            .bind::<Nullable<Array<Nullable<Text>>>, _>(used($new, |e| e.description.as_deref()))
            .bind::<Nullable<Array<Nullable<Text>>>, _>(used($new, |e| e.event_type.as_deref()))
            .bind::<Array<Text>, _>($new.iter().map(|e| e.tags.joined()).collect::<Vec<_>>())
            .bind::<Nullable<Array<Nullable<Json>>>, _>(used($new, |e| {
                (!e.labels.is_empty()).then(|| own_json(&e.labels))
            }))
            .bind::<Nullable<Array<Nullable<Json>>>, _>(used($new, |e| e.payload.as_ref().map(JsonParameter)))
            .bind::<Array<SmallInt>, _>($new.iter().map(|e| e.priority).collect::<Vec<_>>())
            .bind::<Array<Integer>, _>($new.iter().map(|e| e.max_retries).collect::<Vec<_>>())
            .bind::<Nullable<Array<Nullable<Json>>>, _>(used($new, |e| e.backoff.as_ref().map(own_json)))
            .bind::<Nullable<Array<Nullable<Text>>>, _>(used($new, |e| e.ordering_key.as_deref()))
            .bind::<Nullable<Array<Nullable<Text>>>, _>(used($new, |e| e.correlation_id.as_deref()))
            .bind::<Nullable<Array<Nullable<Text>>>, _>(used($new, |e| e.traceparent.as_deref()))
            .bind::<Nullable<Array<Nullable<Timestamptz>>>, _>(used($new, |e| run_at(e.run_at)))
            .bind::<Nullable<Array<Nullable<Double>>>, _>(used($new, |e| delay(e.run_at)))
            .bind::<Nullable<Array<Nullable<Timestamptz>>>, _>(used($new, |e| e.expires_at))
            .bind::<Nullable<Array<Nullable<Integer>>>, _>(used($new, |e| large_payload(e)))
            .bind::<BigInt, _>($generation)
    };
}

/// Stores events in the order given, and what follows from them; the answer is in the same
/// order. Nothing is stored, and nothing answered, if the subscriptions have changed since they
/// were matched.
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
        .bind::<Array<Integer>, _>(pushes_of_each(new.len(), pushes))
        .bind::<Array<Integer>, _>(pushes.iter().map(|push| push.event as i32 + 1).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(pushes.iter().map(|push| push.subscription_id).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(pushes.iter().map(|push| push.max_attempts).collect::<Vec<_>>())
        .bind::<Nullable<Array<Nullable<Text>>>, _>(used(&pushes.iter().collect::<Vec<_>>(), |push| {
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

fn pushes_of_each(events: usize, pushes: &[Push]) -> Vec<i32> {
    let mut counts = vec![0; events];
    for push in pushes {
        counts[push.event] += 1;
    }
    counts
}

/// An event and where it stands.
pub async fn get_event(conn: &mut AsyncPgConnection, scope: &Scope, id: EventId) -> QueryResult<Option<EventRow>> {
    events::table
        .inner_join(deliveries::table.on(deliveries::id.eq(events::id)))
        .filter(events::id.eq(id))
        .filter(events::namespace_id.eq(scope.namespace))
        .select(EventRow::as_select())
        .first(conn)
        .await
        .optional()
}

/// Returns why an event was, or is to be, cancelled, if a reason was given.
pub async fn get_cancel_reason(conn: &mut AsyncPgConnection, id: EventId) -> QueryResult<Option<String>> {
    let reason = deliveries::table.find(id).select(deliveries::cancel_reason).first(conn).await.optional()?;
    Ok(reason.flatten())
}

/// A column's values, or nothing at all if no row has one: most events use few of them, and a
/// list of nulls is not free.
pub(in crate::store) fn used<'a, R, V>(rows: &[&'a R], pick: impl Fn(&'a R) -> Option<V>) -> Option<Vec<Option<V>>> {
    let values: Vec<Option<V>> = rows.iter().map(|row| pick(row)).collect();
    values.iter().any(Option::is_some).then_some(values)
}

/// The size of a payload, if it is large.
fn large_payload(event: &NewEvent) -> Option<i32> {
    let bytes = event.payload.as_ref()?.as_str().len();
    // A payload has at most a megabyte.
    (bytes > LARGE_PAYLOAD).then_some(bytes as i32)
}

fn own_json(value: &impl serde::Serialize) -> JsonColumn {
    // Strings, numbers and maps with string keys always serialise.
    JsonColumn(RawJson::of(value).expect("plain data serialises"))
}

fn run_at(run_at: RunAt) -> Option<DateTime<Utc>> {
    match run_at {
        RunAt::At(time) => Some(time),
        RunAt::Now | RunAt::After(_) => None,
    }
}

fn delay(run_at: RunAt) -> Option<f64> {
    match run_at {
        RunAt::After(seconds) => Some(seconds.as_f64()),
        RunAt::Now | RunAt::At(_) => None,
    }
}
