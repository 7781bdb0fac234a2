//! Claims: the statement that gives deliveries to workers and to the dispatcher.

use diesel::QueryResult;
use diesel::deserialize::{self, QueryableByName};
use diesel::pg::Pg;
use diesel::row::NamedRow;

use diesel::sql_types::{Array, BigInt, Double, Integer, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{DeliveryId, SubscriptionId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::events::LARGE_PAYLOAD;

/// The parameters of [`claim_deliveries`].
#[derive(Debug, Clone)]
pub struct ClaimQuery<'a> {
    pub scope: Scope,
    pub queues: &'a [String],
    /// The position in each queue at which to begin, as rank and seq.
    pub from: &'a [(i16, i64)],
    /// The number of entries to read in each queue.
    pub windows: &'a [i64],
    /// The worker of the first, the second, … delivery. No more deliveries are claimed than workers given.
    pub worker_ids: &'a [&'a str],
    /// The lease of the first, the second, … delivery.
    pub lease_seconds: &'a [f64],
    /// The lease in seconds of deliveries from each queue. It overrides `lease_seconds`; used for pushes.
    pub queue_leases: Option<&'a [i32]>,
    /// The subscription of each queue, and the version that it must have for its pushes to be claimed.
    /// `None` for pull queues.
    pub subscriptions: Option<&'a [(SubscriptionId, i32)]>,
    /// The maximum number of payload bytes to claim. A single delivery may exceed it.
    pub max_bytes: i64,
}

/// The result of a claim.
#[derive(Debug)]
pub struct Claimed {
    /// The claimed events, in claim order.
    pub events: Vec<ClaimedEvent>,
    /// The queues with entries that were read but not claimed, and the number of these entries. For
    /// pushes it is filled only if nothing was claimed.
    pub left: Vec<(String, usize)>,
}

impl Claimed {
    /// Returns whether nothing was claimed although there are entries: other claims are taking them, or
    /// they have expired.
    pub fn is_out_of_reach(&self) -> bool {
        self.events.is_empty() && !self.left.is_empty()
    }
}

/// A claimed delivery with its event.
#[derive(Debug)]
pub struct ClaimedEvent {
    /// The index in `worker_ids` of the worker that claimed it.
    pub slot: usize,
    /// The queue in which it was found, and the rank and seq at which the next claim may begin there.
    pub next: (String, i16, i64),
    pub delivery_id: DeliveryId,
    /// The subscription, if the delivery is a push.
    pub subscription_id: Option<SubscriptionId>,
    /// The dead letter that is being replayed, if any.
    pub replay_of: Option<i64>,
    pub row: EventRow,
}

/// One row of the statement's result.
#[expect(clippy::large_enum_variant, reason = "almost every row is a claimed event")]
enum ClaimRow {
    Claimed(ClaimedEvent),
    /// A queue with entries that were not claimed, and the number of these entries.
    Left(String, usize),
}

impl QueryableByName<Pg> for ClaimRow {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let Some(delivery_id) = NamedRow::get::<Nullable<BigInt>, _>(row, "claimed_id")? else {
            let entries: i32 = NamedRow::get::<Integer, _>(row, "left_entries")?;
            return Ok(ClaimRow::Left(NamedRow::get::<Text, _>(row, "left_queue")?, entries as usize));
        };
        let slot: i32 = NamedRow::get::<Integer, _>(row, "slot")?;
        let queue = NamedRow::get::<Text, _>(row, "queue")?;
        let rank = NamedRow::get::<SmallInt, _>(row, "next_rank")?;
        let seq = NamedRow::get::<BigInt, _>(row, "next_seq")?;
        Ok(ClaimRow::Claimed(ClaimedEvent {
            // SQL counts from 1.
            slot: slot as usize - 1,
            next: (queue, rank, seq),
            delivery_id,
            subscription_id: NamedRow::get::<Nullable<BigInt>, _>(row, "subscription_id")?,
            replay_of: NamedRow::get::<Nullable<BigInt>, _>(row, "replay_of")?,
            row: EventRow::build(row)?,
        }))
    }
}

/// The statement behind [`claim_deliveries`], public for the cost tests.
pub const CLAIM_DELIVERIES: Statement = statement!("claim_deliveries");

/// Claims deliveries. Sets them from PENDING to PROCESSING, removes them from `ready`, and logs PICKED.
pub async fn claim_deliveries(conn: &mut AsyncPgConnection, query: &ClaimQuery<'_>) -> QueryResult<Claimed> {
    let (subscription_ids, versions): (Option<Vec<SubscriptionId>>, Option<Vec<i32>>) =
        query.subscriptions.map(|subscriptions| subscriptions.iter().copied().unzip()).unzip();
    let rows: Vec<ClaimRow> = CLAIM_DELIVERIES
        .query()
        .bind::<Integer, _>(query.scope.namespace)
        .bind::<Array<Text>, _>(query.queues)
        .bind::<BigInt, _>(query.worker_ids.len() as i64)
        .bind::<Array<BigInt>, _>(query.windows)
        .bind::<Array<Text>, _>(query.worker_ids)
        .bind::<Array<Double>, _>(query.lease_seconds)
        .bind::<Nullable<Timestamptz>, _>(query.scope.now)
        .bind::<Array<SmallInt>, _>(query.from.iter().map(|from| from.0).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(query.from.iter().map(|from| from.1).collect::<Vec<_>>())
        .bind::<Nullable<Array<Integer>>, _>(query.queue_leases)
        .bind::<Nullable<Array<BigInt>>, _>(subscription_ids)
        .bind::<Nullable<Array<Integer>>, _>(versions)
        .bind::<BigInt, _>(query.max_bytes)
        .bind::<BigInt, _>(LARGE_PAYLOAD as i64)
        .cached()
        .load(conn)
        .await?;
    let mut claimed = Claimed { events: Vec::with_capacity(rows.len()), left: Vec::new() };
    for row in rows {
        match row {
            ClaimRow::Claimed(event) => claimed.events.push(event),
            ClaimRow::Left(queue, entries) => claimed.left.push((queue, entries)),
        }
    }
    Ok(claimed)
}
