//! Loads deliveries under lock, and saves them.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Integer, Json, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::backoff::Backoff;
use crate::domain::delivery::{Delivery, LastSettlement, Readiness};
use crate::domain::ids::{DeliveryId, DeliveryKey, EventId, LeaseId, NamespaceId, SubscriptionId};
use crate::domain::status::Status;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::{Statement, statement};
use crate::store::tables::columns::{ActionColumn, JsonColumn, StatusColumn};
use crate::store::tables::events::column_or_null;

/// A locked delivery, with what is needed to change it.
#[derive(Debug)]
pub struct Loaded {
    pub delivery: Delivery,
    /// The status when the delivery was loaded.
    pub previous_status: Status,
    /// Whether the row is a roll-up: it only counts the results of its event's pushes.
    pub is_roll_up: bool,
    /// Whether it has a position in the order of its key. A failed delivery may keep its position and so
    /// block the key.
    pub has_order_seq: bool,
    /// Whether the subscription of the push has been deleted. False until it has been checked.
    pub is_orphan: bool,
    pub tags: Vec<String>,
    /// The backoff of the event. `None` means the server's default.
    pub backoff: Option<Backoff>,
    /// The bytes of the event's payload, if it is a large one.
    pub large_payload_bytes: Option<i32>,
    /// The time at which the event expires. The delivery's own `expires_at` is cleared when it ends.
    pub event_expires_at: Option<DateTime<Utc>>,
    /// The time of the last change. For a held delivery it is the worker's last sign of life.
    pub updated_at: DateTime<Utc>,
    /// The time of the transaction.
    pub now: DateTime<Utc>,
}

impl Loaded {
    /// Restores the expiry of the event, unless it has passed: a delivery that is made pending again would
    /// otherwise expire at once.
    pub fn forget_past_expiry(&mut self) {
        self.delivery.expires_at = self.event_expires_at.filter(|at| *at > self.now);
    }
}

#[derive(QueryableByName)]
#[expect(clippy::struct_excessive_bools, reason = "the columns of the statement")]
struct LoadedRow {
    #[diesel(sql_type = Integer)]
    namespace_id: NamespaceId,
    #[diesel(sql_type = BigInt)]
    id: DeliveryId,
    #[diesel(sql_type = BigInt)]
    event_id: EventId,
    #[diesel(sql_type = Nullable<BigInt>)]
    subscription_id: Option<SubscriptionId>,
    #[diesel(sql_type = Text)]
    status: StatusColumn,
    #[diesel(sql_type = Integer)]
    retry_count: i32,
    #[diesel(sql_type = Integer)]
    rescue_count: i32,
    #[diesel(sql_type = BigInt)]
    lease_id: LeaseId,
    #[diesel(sql_type = Nullable<Text>)]
    worker_id: Option<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    lease_expires_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Bool)]
    cancel_requested: bool,
    #[diesel(sql_type = Nullable<Text>)]
    cancel_reason: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    cancel_actor: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    ready_seq: Option<i64>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    due_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    expires_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Text>)]
    ordering_key: Option<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    started_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<BigInt>)]
    settled_lease_id: Option<LeaseId>,
    #[diesel(sql_type = Nullable<Text>)]
    settled_action: Option<ActionColumn>,
    #[diesel(sql_type = Nullable<Json>)]
    progress: Option<JsonColumn>,
    #[diesel(sql_type = Nullable<Json>)]
    result: Option<JsonColumn>,
    #[diesel(sql_type = Nullable<Text>)]
    last_error: Option<String>,
    #[diesel(sql_type = Timestamptz)]
    updated_at: DateTime<Utc>,
    #[diesel(sql_type = Array<Text>)]
    tags: Vec<String>,
    #[diesel(sql_type = Nullable<Json>)]
    backoff: Option<JsonColumn>,
    #[diesel(sql_type = Nullable<Integer>)]
    payload_bytes: Option<i32>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    event_expires_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Timestamptz)]
    now: DateTime<Utc>,
    #[diesel(sql_type = Bool)]
    is_roll_up: bool,
    #[diesel(sql_type = Bool)]
    has_order_seq: bool,
    #[diesel(sql_type = Bool)]
    blocks_when_failed: bool,
    #[diesel(sql_type = Integer)]
    max_retries: i32,
}

impl LoadedRow {
    fn readiness(&self) -> Readiness {
        match (self.status.0, self.ready_seq, self.due_at) {
            _ if self.is_roll_up => Readiness::NotWaiting,
            (Status::Pending, Some(_), _) => Readiness::Ready,
            (Status::Pending, None, Some(at)) => Readiness::Due(at),
            (Status::Pending, None, None) => Readiness::BehindKey,
            _ => Readiness::NotWaiting,
        }
    }
}

impl From<LoadedRow> for Loaded {
    fn from(row: LoadedRow) -> Self {
        let readiness = row.readiness();
        Loaded {
            previous_status: row.status.0,
            is_roll_up: row.is_roll_up,
            has_order_seq: row.has_order_seq,
            is_orphan: false,
            tags: row.tags,
            // The backoff was validated before it was stored. A later version may have stored a strategy
            // that this version does not know; then the server's default applies.
            backoff: row.backoff.and_then(|json| serde_json::from_str(json.0.as_str()).ok()),
            large_payload_bytes: row.payload_bytes,
            event_expires_at: row.event_expires_at,
            updated_at: row.updated_at,
            now: row.now,
            delivery: Delivery {
                namespace: row.namespace_id,
                id: row.id,
                event_id: row.event_id,
                subscription_id: row.subscription_id,
                status: row.status.0,
                readiness,
                retry_count: row.retry_count,
                max_retries: row.max_retries,
                rescue_count: row.rescue_count,
                lease_id: row.lease_id,
                worker_id: row.worker_id,
                lease_expires_at: row.lease_expires_at,
                started_at: row.started_at,
                cancel_requested: row.cancel_requested,
                cancel_reason: row.cancel_reason,
                cancel_actor: row.cancel_actor,
                expires_at: row.expires_at,
                ordering_key: row.ordering_key,
                blocks_when_failed: row.blocks_when_failed,
                settled: row
                    .settled_lease_id
                    .zip(row.settled_action)
                    .map(|(lease_id, action)| LastSettlement { lease_id, action: action.0 }),
                progress: row.progress.map(|json| json.0),
                result: row.result.map(|json| json.0),
                last_error: row.last_error,
            },
        }
    }
}

/// The statement behind [`load_deliveries`], public for the cost tests.
pub const LOAD_DELIVERIES: Statement = statement!("load_deliveries");

/// The statement behind [`save_deliveries`], public for the cost tests.
pub const SAVE_DELIVERIES: Statement = statement!("save_deliveries");

/// Loads deliveries and locks their rows until the transaction ends.
pub async fn load_deliveries(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    keys: &[DeliveryKey],
) -> QueryResult<Vec<Loaded>> {
    let rows: Vec<LoadedRow> = LOAD_DELIVERIES
        .query()
        .bind::<Array<Integer>, _>(keys.iter().map(|key| key.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(keys.iter().map(|key| key.id).collect::<Vec<_>>())
        .bind::<Nullable<Timestamptz>, _>(now)
        .cached()
        .load(conn)
        .await?;
    Ok(rows.into_iter().map(Loaded::from).collect())
}

/// A delivery to save.
#[derive(Debug)]
pub struct Save<'a> {
    pub delivery: &'a Delivery,
    /// Whether it moves to the end of its ordering key.
    pub to_tail: bool,
}

/// Saves deliveries that were loaded under lock, and updates `ready`. Returns the deliveries that entered
/// `ready`.
pub async fn save_deliveries(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    saves: &[Save<'_>],
) -> QueryResult<Vec<EnteredRow>> {
    let all = || saves.iter().map(|save| save.delivery);
    let deliveries: Vec<&Delivery> = all().collect();
    let json = |value: &Option<crate::domain::json::RawJson>| value.clone().map(JsonColumn);
    SAVE_DELIVERIES
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<Integer>, _>(all().map(|d| d.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(all().map(|d| d.id).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(all().map(|d| d.status.as_str()).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(all().map(|d| d.retry_count).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(all().map(|d| d.rescue_count).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(all().map(|d| d.worker_id.as_deref()).collect::<Vec<_>>())
        .bind::<Array<Nullable<Timestamptz>>, _>(all().map(|d| d.lease_expires_at).collect::<Vec<_>>())
        .bind::<Array<Bool>, _>(all().map(|d| d.cancel_requested).collect::<Vec<_>>())
        .bind::<Array<Bool>, _>(all().map(|d| d.readiness == Readiness::Ready).collect::<Vec<_>>())
        .bind::<Array<Nullable<Timestamptz>>, _>(all().map(Delivery::due_at).collect::<Vec<_>>())
        .bind::<Array<Nullable<Timestamptz>>, _>(all().map(|d| d.expires_at).collect::<Vec<_>>())
        .bind::<Array<Bool>, _>(all().map(Delivery::is_in_order).collect::<Vec<_>>())
        .bind::<Array<Bool>, _>(saves.iter().map(|s| s.to_tail && s.delivery.is_in_order()).collect::<Vec<_>>())
        .bind::<Array<Nullable<Timestamptz>>, _>(all().map(|d| d.started_at).collect::<Vec<_>>())
        .bind::<Array<Nullable<BigInt>>, _>(all().map(|d| d.settled.map(|s| s.lease_id)).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(all().map(|d| d.settled.map(|s| s.action.as_str())).collect::<Vec<_>>())
        .bind::<Array<Nullable<Json>>, _>(all().map(|d| json(&d.progress)).collect::<Vec<_>>())
        .bind::<Array<Nullable<Json>>, _>(all().map(|d| json(&d.result)).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(all().map(|d| d.last_error.as_deref()).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(all().map(|d| d.max_retries).collect::<Vec<_>>())
        .bind::<Array<Nullable<Text>>, _>(all().map(|d| d.cancel_reason.as_deref()).collect::<Vec<_>>())
        .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null(&deliveries, |d| d.cancel_actor.as_deref()))
        .cached()
        .load(conn)
        .await
}

/// A delivery that entered `ready`, with its position there.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub struct EnteredRow {
    #[diesel(sql_type = Integer)]
    pub namespace_id: NamespaceId,
    #[diesel(sql_type = BigInt)]
    pub id: DeliveryId,
    /// The negated priority.
    #[diesel(sql_type = SmallInt)]
    pub rank: i16,
    #[diesel(sql_type = BigInt)]
    pub seq: i64,
}

impl EnteredRow {
    pub fn key(&self) -> DeliveryKey {
        self.namespace_id.delivery(self.id)
    }
}

/// The earliest times for which any delivery waits.
#[derive(Debug, Default, QueryableByName)]
pub struct EarliestTimes {
    /// The earliest time at which a delivery becomes due.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub due_at: Option<DateTime<Utc>>,
    /// The earliest time at which a delivery expires.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub expires_at: Option<DateTime<Utc>>,
    /// The earliest time at which a lease is to be checked.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub look_at: Option<DateTime<Utc>>,
}

/// Returns the earliest times, read from the beginning of each index instead of a low-water mark.
pub async fn find_earliest_times(conn: &mut AsyncPgConnection) -> QueryResult<EarliestTimes> {
    statement!("find_earliest_times").query().cached().load_one(conn).await
}
