//! Claims: the statement that gives deliveries to workers and to the dispatcher.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::deserialize::{self, QueryableByName};
use diesel::pg::Pg;
use diesel::row::NamedRow;

use diesel::sql_types::{Array, BigInt, Double, Integer, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{DeliveryId, NamespaceId, SubscriptionId};
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::events::LARGE_PAYLOAD;
use crate::store::tables::queue_claims::{QueueClaim, claim_deliveries_from_queue};
use crate::store::tables::ready::QueueKey;

/// The parameters of [`claim_deliveries`].
#[derive(Debug, Clone)]
pub struct ClaimQuery<'a> {
    pub now: Option<DateTime<Utc>>,
    /// The groups, all of them of pull queues, or all of them of pushes. Of a namespace there is one group at most.
    pub groups: &'a [ClaimGroup<'a>],
    /// The maximum number of payload bytes to claim, for all groups together. A single delivery may exceed it.
    pub max_bytes: i64,
}

/// Callers that claim from the same queues of a namespace.
#[derive(Debug, Clone)]
pub struct ClaimGroup<'a> {
    pub namespace: NamespaceId,
    pub queues: Vec<ClaimQueue<'a>>,
    /// The worker of the first, the second, … delivery. No more deliveries are claimed than workers given.
    pub worker_ids: Vec<&'a str>,
    /// The lease of the first, the second, … delivery. Empty for pushes.
    pub lease_seconds: Vec<f64>,
}

/// A queue to claim from.
#[derive(Debug, Clone, Copy)]
pub struct ClaimQueue<'a> {
    pub name: &'a str,
    /// The position at which to begin, as rank and seq.
    pub from: (i16, i64),
    /// The number of entries to read.
    pub window: i64,
    /// Set for the queue of a subscription.
    pub pushes: Option<PushQueue>,
}

/// What a claim needs to know about the queue of a subscription.
#[derive(Debug, Clone, Copy)]
pub struct PushQueue {
    pub subscription_id: SubscriptionId,
    /// The version that the subscription must have for its pushes to be claimed.
    pub version: i32,
    pub lease_seconds: i32,
}

impl ClaimQuery<'_> {
    /// Returns the values that the queues of pushes have, or `None` if the queues are pull queues.
    fn of_pushes<V>(&self, pick: fn(PushQueue) -> V) -> Option<Vec<V>> {
        self.queues().map(|(_, _, queue)| queue.pushes.map(pick)).collect()
    }

    /// Returns the queues in the order of their numbers, each with the index of its group.
    fn queues(&self) -> impl Iterator<Item = (usize, NamespaceId, &ClaimQueue<'_>)> {
        let groups = self.groups.iter().enumerate();
        groups.flat_map(|(index, group)| group.queues.iter().map(move |queue| (index, group.namespace, queue)))
    }

    /// Returns the number of slots before those of each group.
    fn first_slots(&self) -> Vec<i32> {
        let before = |sum: &mut i32, group: &ClaimGroup<'_>| {
            let first = *sum;
            *sum += group.worker_ids.len() as i32;
            Some(first)
        };
        self.groups.iter().scan(0, before).collect()
    }
}

/// The result of a claim for one group.
#[derive(Debug, Default)]
pub struct Claimed {
    /// The claimed events, in claim order.
    pub events: Vec<ClaimedEvent>,
    /// The queues with entries that were read but not claimed, and the number of these entries. For
    /// pushes it is filled only if nothing was claimed for any group.
    pub left: Vec<(QueueKey, usize)>,
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
    /// The index in `worker_ids` of its group of the worker that claimed it.
    pub slot: usize,
    /// The queue in which it was found, and the rank and seq at which the next claim may begin there.
    pub next: (QueueKey, i16, i64),
    pub delivery_id: DeliveryId,
    /// The subscription, if the delivery is a push.
    pub subscription_id: Option<SubscriptionId>,
    /// The dead letter that is being replayed, if any.
    pub replay_of: Option<i64>,
    pub row: EventRow,
}

/// One row of the statement's result. Groups and queues are numbered from 0.
#[expect(clippy::large_enum_variant, reason = "almost every row is a claimed event")]
enum ClaimRow {
    Claimed {
        group: usize,
        queue: usize,
        slot: usize,
        next: (i16, i64),
        delivery_id: DeliveryId,
        subscription_id: Option<SubscriptionId>,
        replay_of: Option<i64>,
        row: EventRow,
    },
    /// A queue with entries that were not claimed, and the number of these entries.
    Left { queue: usize, entries: usize },
}

/// Returns a number of the statement's result as an index. SQL counts from 1.
pub(super) fn index<'a>(row: &impl NamedRow<'a, Pg>, column: &str) -> deserialize::Result<usize> {
    let number: i32 = NamedRow::get::<Integer, _>(row, column)?;
    Ok(usize::try_from(number - 1)?)
}

impl QueryableByName<Pg> for ClaimRow {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let Some(delivery_id) = NamedRow::get::<Nullable<BigInt>, _>(row, "claimed_id")? else {
            let entries: i32 = NamedRow::get::<Integer, _>(row, "left_entries")?;
            return Ok(ClaimRow::Left { queue: index(row, "left_queue")?, entries: entries as usize });
        };
        let rank = NamedRow::get::<SmallInt, _>(row, "next_rank")?;
        let seq = NamedRow::get::<BigInt, _>(row, "next_seq")?;
        Ok(ClaimRow::Claimed {
            group: index(row, "group_number")?,
            queue: index(row, "queue_number")?,
            slot: index(row, "slot")?,
            next: (rank, seq),
            delivery_id,
            subscription_id: NamedRow::get::<Nullable<BigInt>, _>(row, "subscription_id")?,
            replay_of: NamedRow::get::<Nullable<BigInt>, _>(row, "replay_of")?,
            row: EventRow::build(row)?,
        })
    }
}

/// The statement behind [`claim_deliveries`], public for the cost tests.
pub const CLAIM_DELIVERIES: Statement = statement!("claim_deliveries");

/// Claims deliveries. Sets them from PENDING to PROCESSING, removes them from `ready`, and logs PICKED. Returns what was
/// claimed for each group, in their order.
pub async fn claim_deliveries(conn: &mut AsyncPgConnection, query: &ClaimQuery<'_>) -> QueryResult<Vec<Claimed>> {
    if let Some(claim) = QueueClaim::of(query) {
        return Ok(vec![claim_deliveries_from_queue(conn, &claim).await?]);
    }
    let queues: Vec<(usize, NamespaceId, &ClaimQueue<'_>)> = query.queues().collect();
    let groups = query.groups;
    let worker_ids: Vec<&str> = groups.iter().flat_map(|group| group.worker_ids.iter().copied()).collect();
    let lease_seconds: Vec<f64> = groups.iter().flat_map(|group| group.lease_seconds.iter().copied()).collect();
    let rows: Vec<ClaimRow> = CLAIM_DELIVERIES
        .query()
        .bind::<Nullable<Timestamptz>, _>(query.now)
        .bind::<Array<BigInt>, _>(groups.iter().map(|group| group.worker_ids.len() as i64).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(query.first_slots())
        .bind::<Array<Integer>, _>(queues.iter().map(|(group, _, _)| *group as i32 + 1).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(queues.iter().map(|(_, namespace, _)| *namespace).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(queues.iter().map(|(_, _, queue)| queue.name).collect::<Vec<_>>())
        .bind::<Array<SmallInt>, _>(queues.iter().map(|(_, _, queue)| queue.from.0).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(queues.iter().map(|(_, _, queue)| queue.from.1).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(queues.iter().map(|(_, _, queue)| queue.window).collect::<Vec<_>>())
        .bind::<Nullable<Array<Integer>>, _>(query.of_pushes(|pushes| pushes.lease_seconds))
        .bind::<Nullable<Array<BigInt>>, _>(query.of_pushes(|pushes| pushes.subscription_id))
        .bind::<Nullable<Array<Integer>>, _>(query.of_pushes(|pushes| pushes.version))
        .bind::<Array<Text>, _>(worker_ids)
        .bind::<Array<Double>, _>(lease_seconds)
        .bind::<BigInt, _>(query.max_bytes)
        .bind::<Integer, _>(LARGE_PAYLOAD as i32)
        .cached()
        .load(conn)
        .await?;
    let key = |queue: usize| QueueKey { namespace: queues[queue].1, name: queues[queue].2.name.to_owned() };
    let mut claimed: Vec<Claimed> = groups.iter().map(|_| Claimed::default()).collect();
    for row in rows {
        match row {
            ClaimRow::Left { queue, entries } => claimed[queues[queue].0].left.push((key(queue), entries)),
            ClaimRow::Claimed {
                group,
                queue,
                slot,
                next: (rank, seq),
                delivery_id,
                subscription_id,
                replay_of,
                row,
            } => {
                let next = (key(queue), rank, seq);
                let event = ClaimedEvent { slot, next, delivery_id, subscription_id, replay_of, row };
                claimed[group].events.push(event);
            }
        }
    }
    Ok(claimed)
}
