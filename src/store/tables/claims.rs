//! Claims: the one statement that hands work out.

use diesel::QueryResult;
use diesel::deserialize::{self, QueryableByName};
use diesel::pg::Pg;
use diesel::row::NamedRow;

use diesel::sql_types::{Array, BigInt, Integer, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{DeliveryId, SubscriptionId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::events::LARGE_PAYLOAD;

/// A claim, as the statement wants it.
#[derive(Debug, Clone)]
pub struct ClaimQuery<'a> {
    /// Whose queues.
    pub scope: Scope,
    /// Which queues.
    pub queues: &'a [String],
    /// Where to begin in each, by rank and number.
    pub from: &'a [(i16, i64)],
    /// How far to look into each queue.
    pub windows: &'a [i64],
    /// Who gets the first, the second, … delivery; as many as there are names, at most.
    pub worker_ids: &'a [&'a str],
    /// For how long each.
    pub lease_seconds: &'a [i32],
    /// For how long what is found in each queue, if it goes by that.
    pub queue_leases: Option<&'a [i32]>,
    /// Which subscription each queue is, and at which version it must be for anything of it to
    /// be had, if they are subscriptions' queues.
    pub subscriptions: Option<&'a [(SubscriptionId, i32)]>,
    /// How many bytes of payloads at most, if that is more than one delivery.
    pub max_bytes: i64,
}

/// What a claim found.
#[derive(Debug)]
pub struct Claimed {
    /// What was claimed, in claim order.
    pub events: Vec<ClaimedEvent>,
    /// The queues in which entries were seen and left, and how many; of pushes only if nothing was
    /// claimed.
    pub left: Vec<(String, usize)>,
}

impl Claimed {
    /// Returns whether nothing was claimed although work is there: others are just taking it, or
    /// it has expired.
    pub fn is_out_of_reach(&self) -> bool {
        self.events.is_empty() && !self.left.is_empty()
    }
}

/// One of them.
#[derive(Debug)]
pub struct ClaimedEvent {
    /// The number of the name that got it.
    pub slot: usize,
    /// The queue in which it was found, and where the next claim may begin there, by rank and
    /// number.
    pub next: (String, i16, i64),
    /// The delivery.
    pub delivery_id: DeliveryId,
    /// Whom it is pushed to, if it is.
    pub subscription_id: Option<SubscriptionId>,
    /// The dead letter from which it is sent again, if that says how.
    pub replay_of: Option<i64>,
    /// The event.
    pub row: EventRow,
}

/// One row of the statement.
enum ClaimRow {
    Claimed(ClaimedEvent),
    /// A queue with entries that were not claimed, and their number.
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
            // SQL counts from one.
            slot: slot as usize - 1,
            next: (queue, rank, seq),
            delivery_id,
            subscription_id: NamedRow::get::<Nullable<BigInt>, _>(row, "subscription_id")?,
            replay_of: NamedRow::get::<Nullable<BigInt>, _>(row, "replay_of")?,
            row: EventRow::build(row)?,
        }))
    }
}

/// The statement behind [`claim_deliveries`], for those who measure it.
pub const CLAIM_DELIVERIES: Statement = statement!("claim_deliveries");

/// Claims deliveries: PENDING → PROCESSING, out of `ready`, PICKED in the log.
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
        .bind::<Array<Integer>, _>(query.lease_seconds)
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
