//! Roll-ups: the own delivery of an event that is only pushed counts the results of its pushes.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{OptionalExtension, QueryableByName};
use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{DeliveryId, EventId, EventKey};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::{Statement, statement};
use crate::store::tables::columns::StatusColumn;

/// The changes of one event's counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RollUp {
    /// The change of the number of open pushes.
    pub open: i32,
    /// The change of the number of failed pushes.
    pub failed: i32,
}

/// The statement behind [`roll_up`], public for the cost tests.
pub const ROLL_UP: Statement = statement!("roll_up");

/// Adds changes to the counts of events.
pub async fn roll_up(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    changes: &BTreeMap<EventKey, RollUp>,
) -> QueryResult<()> {
    ROLL_UP
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<Integer>, _>(changes.keys().map(|event| event.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(changes.keys().map(|event| event.id).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(changes.values().map(|change| change.open).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(changes.values().map(|change| change.failed).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

#[derive(QueryableByName)]
struct PushesRow {
    #[diesel(sql_type = Array<BigInt>)]
    pushes: Vec<DeliveryId>,
}

/// Returns the pushes of an event that is only pushed, or `None` if it also waits for workers or does not
/// exist. The set of pushes never changes after publication. Does not lock anything.
pub async fn find_rolled_up(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    event_id: EventId,
) -> QueryResult<Option<Vec<DeliveryId>>> {
    let query = statement!("find_rolled_up").query().bind::<Integer, _>(scope.namespace).bind::<BigInt, _>(event_id);
    let row: Option<PushesRow> = query.cached().load_one(conn).await.optional()?;
    Ok(row.map(|row| row.pushes))
}

/// A delivery that an operator's action on its event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub struct EventWork {
    #[diesel(sql_type = BigInt)]
    pub event_id: EventId,
    /// The delivery. The event's own delivery has the id of the event.
    #[diesel(sql_type = BigInt)]
    pub id: DeliveryId,
    /// Whether the event is only pushed, so that the delivery is one of its pushes.
    #[diesel(sql_type = Bool)]
    pub is_rolled_up: bool,
}

/// Reads at most `rows` deliveries that an action on events is about, event by event in the order given. Of
/// an event that is only pushed, these are the pushes behind `after` with one of `statuses`.
pub async fn read_work_of_events(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    event_ids: &[EventId],
    after: DeliveryId,
    statuses: &[&'static str],
    rows: i64,
) -> QueryResult<Vec<EventWork>> {
    statement!("read_work_of_events")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<BigInt>, _>(event_ids)
        .bind::<BigInt, _>(after)
        .bind::<Array<Text>, _>(statuses)
        .bind::<BigInt, _>(rows)
        .cached()
        .load(conn)
        .await
}

/// The state of an event's roll-up. The migrations describe the columns.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub struct RolledUpState {
    #[diesel(sql_type = BigInt)]
    pub id: EventId,
    #[diesel(sql_type = Text)]
    pub status: StatusColumn,
    #[diesel(sql_type = Bool)]
    pub cancel_requested: bool,
    #[diesel(sql_type = Integer)]
    pub failed_deliveries: i32,
}

/// Locks the roll-ups of events and returns their state, ordered by id. Transactions that end one of their
/// pushes wait until this transaction ends.
pub async fn lock_rolled_up(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    event_ids: &[EventId],
) -> QueryResult<Vec<RolledUpState>> {
    let query = statement!("lock_rolled_up").query().bind::<Integer, _>(scope.namespace);
    query.bind::<Array<BigInt>, _>(event_ids).cached().load(conn).await
}

/// Records on the roll-ups of events that their pushes are being cancelled.
pub async fn request_cancel(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    event_ids: &[EventId],
    reason: Option<&str>,
) -> QueryResult<()> {
    statement!("request_cancel")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<BigInt>, _>(event_ids)
        .bind::<Nullable<Text>, _>(reason)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}
