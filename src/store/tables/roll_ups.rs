//! Roll-ups: the own delivery of an event that is only pushed counts the results of its pushes.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{OptionalExtension, QueryableByName};
use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{DeliveryId, EventId};
use crate::store::connection::cached::CachedExt;
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
    changes: &BTreeMap<EventId, RollUp>,
) -> QueryResult<()> {
    ROLL_UP
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<BigInt>, _>(changes.keys().copied().collect::<Vec<_>>())
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
pub async fn find_rolled_up(conn: &mut AsyncPgConnection, event_id: EventId) -> QueryResult<Option<Vec<DeliveryId>>> {
    let row: Option<PushesRow> =
        statement!("find_rolled_up").query().bind::<BigInt, _>(event_id).cached().get_result(conn).await.optional()?;
    Ok(row.map(|row| row.pushes))
}

/// A delivery that a retry of its event may reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub struct Retriable {
    #[diesel(sql_type = BigInt)]
    pub event_id: EventId,
    /// The delivery. The event's own delivery has the id of the event.
    #[diesel(sql_type = BigInt)]
    pub id: DeliveryId,
    /// Whether it can be retried: it failed or was cancelled, and its subscription still exists.
    #[diesel(sql_type = Bool)]
    pub is_retriable: bool,
}

/// Reads at most `rows` deliveries of events that are to be retried, event by event in the order given.
/// Deliveries that cannot be retried are included and count towards `rows`.
pub async fn read_retriable(
    conn: &mut AsyncPgConnection,
    event_ids: &[EventId],
    rows: i64,
) -> QueryResult<Vec<Retriable>> {
    statement!("read_retriable")
        .query()
        .bind::<Array<BigInt>, _>(event_ids)
        .bind::<BigInt, _>(rows)
        .cached()
        .load(conn)
        .await
}

/// The state of an event's roll-up. The migrations describe the columns.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub struct RolledUpState {
    #[diesel(sql_type = Text)]
    pub status: StatusColumn,
    #[diesel(sql_type = Bool)]
    pub cancel_requested: bool,
    #[diesel(sql_type = Integer)]
    pub failed_deliveries: i32,
}

/// Locks the roll-up of an event and returns its state. Transactions that end one of its pushes wait until
/// this transaction ends.
pub async fn lock_rolled_up(conn: &mut AsyncPgConnection, event_id: EventId) -> QueryResult<RolledUpState> {
    statement!("lock_rolled_up").query().bind::<BigInt, _>(event_id).cached().get_result(conn).await
}

/// Records on the roll-up of an event that its pushes are being cancelled.
pub async fn request_cancel(conn: &mut AsyncPgConnection, event_id: EventId, reason: Option<&str>) -> QueryResult<()> {
    statement!("request_cancel")
        .query()
        .bind::<BigInt, _>(event_id)
        .bind::<Nullable<Text>, _>(reason)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}
