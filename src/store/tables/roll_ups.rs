//! What became of an event's pushes, counted on its own row where it has no other work.

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

/// What changed for the deliveries of one event.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RollUp {
    /// How many more are unfinished.
    pub open: i32,
    /// How many more were given up.
    pub failed: i32,
}

/// The statement behind [`roll_up`], for those who measure it.
pub const ROLL_UP: Statement = statement!("roll_up");

/// Counts on events' own rows what changed for their deliveries.
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

/// Returns the pushes of an event that is pushed and nothing else; `None` if it has work of its own,
/// or does not exist. There are never more or fewer than when it was published. Nothing is locked.
pub async fn find_rolled_up(conn: &mut AsyncPgConnection, event_id: EventId) -> QueryResult<Option<Vec<DeliveryId>>> {
    let row: Option<PushesRow> =
        statement!("find_rolled_up").query().bind::<BigInt, _>(event_id).cached().get_result(conn).await.optional()?;
    Ok(row.map(|row| row.pushes))
}

/// A delivery that a retry of its event may bring back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub struct Retriable {
    /// Its event.
    #[diesel(sql_type = BigInt)]
    pub event_id: EventId,
    /// The delivery; an event's own work has the event's id.
    #[diesel(sql_type = BigInt)]
    pub id: DeliveryId,
    /// Whether it can be brought back: given up or called off, for a subscription that is there.
    #[diesel(sql_type = Bool)]
    pub is_retriable: bool,
}

/// Reads the deliveries that retries of these events are about, event by event in the order given,
/// at most `rows` of them. Those that are of no interest are read, too, and count.
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

/// Where an event stands that rolls up its pushes.
#[derive(Debug, Clone, Copy, QueryableByName)]
#[expect(missing_docs, reason = "the columns are described in the migrations")]
pub struct RolledUpState {
    #[diesel(sql_type = Text)]
    pub status: StatusColumn,
    #[diesel(sql_type = Bool)]
    pub cancel_requested: bool,
    #[diesel(sql_type = Integer)]
    pub failed_deliveries: i32,
}

/// Locks the own row of such an event. Whoever ends one of its pushes meanwhile waits.
pub async fn lock_rolled_up(conn: &mut AsyncPgConnection, event_id: EventId) -> QueryResult<RolledUpState> {
    statement!("lock_rolled_up").query().bind::<BigInt, _>(event_id).cached().get_result(conn).await
}

/// Notes on an event's own row that its pushes are called off.
pub async fn ask_to_cancel(conn: &mut AsyncPgConnection, event_id: EventId, reason: Option<&str>) -> QueryResult<()> {
    statement!("request_cancel")
        .query()
        .bind::<BigInt, _>(event_id)
        .bind::<Nullable<Text>, _>(reason)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}
