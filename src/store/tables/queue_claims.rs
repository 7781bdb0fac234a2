//! The claim of workers that all ask for one queue.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::deserialize::{self, QueryableByName};
use diesel::pg::Pg;
use diesel::row::NamedRow;
use diesel::sql_types::{Array, BigInt, Double, Integer, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::DeliveryId;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};
use crate::store::tables::claims::{ClaimGroup, ClaimQuery, ClaimQueue, Claimed, ClaimedEvent, index};
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::events::LARGE_PAYLOAD;
use crate::store::tables::ready::QueueKey;

/// The statement behind [`claim_deliveries_from_queue`], public for the cost tests.
pub const CLAIM_DELIVERIES_FROM_QUEUE: Statement = statement!("claim_deliveries_from_queue");

/// A claim from a single queue that is not one of pushes.
pub(super) struct QueueClaim<'a> {
    now: Option<DateTime<Utc>>,
    group: &'a ClaimGroup<'a>,
    queue: &'a ClaimQueue<'a>,
    max_bytes: i64,
}

impl<'a> QueueClaim<'a> {
    /// Returns the claim if it is one from a single pull queue.
    pub(super) fn of(query: &ClaimQuery<'a>) -> Option<Self> {
        let [group] = query.groups else { return None };
        match group.queues.as_slice() {
            [queue] if queue.pushes.is_none() => {
                Some(QueueClaim { now: query.now, group, queue, max_bytes: query.max_bytes })
            }
            _ => None,
        }
    }
}

/// One row of the statement's result.
struct QueueRow {
    /// The number of entries that were read, and the rank and seq of the first.
    candidates: usize,
    head: (i16, i64),
    /// `None` if no entry could be claimed.
    claimed: Option<ClaimedEntry>,
}

struct ClaimedEntry {
    slot: usize,
    /// The index of the entry among those that were read, and its rank and seq.
    place: usize,
    position: (i16, i64),
    delivery_id: DeliveryId,
    row: EventRow,
}

impl QueryableByName<Pg> for QueueRow {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let candidates: i32 = NamedRow::get::<Integer, _>(row, "candidates")?;
        let position = |rank, seq| -> deserialize::Result<(i16, i64)> {
            Ok((NamedRow::get::<SmallInt, _>(row, rank)?, NamedRow::get::<BigInt, _>(row, seq)?))
        };
        let claimed = match NamedRow::get::<Nullable<BigInt>, Option<DeliveryId>>(row, "claimed_id")? {
            None => None,
            Some(delivery_id) => Some(ClaimedEntry {
                slot: index(row, "slot")?,
                place: index(row, "place")?,
                position: position("rank", "seq")?,
                delivery_id,
                row: EventRow::build(row)?,
            }),
        };
        Ok(QueueRow { candidates: usize::try_from(candidates)?, head: position("head_rank", "head_seq")?, claimed })
    }
}

/// Claims from one queue, with the effect of [`super::claims::claim_deliveries`].
pub(super) async fn claim_deliveries_from_queue(
    conn: &mut AsyncPgConnection,
    claim: &QueueClaim<'_>,
) -> QueryResult<Claimed> {
    let QueueClaim { now, group, queue, max_bytes } = claim;
    let rows: Vec<QueueRow> = CLAIM_DELIVERIES_FROM_QUEUE
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Integer, _>(group.namespace)
        .bind::<Text, _>(queue.name)
        .bind::<SmallInt, _>(queue.from.0)
        .bind::<BigInt, _>(queue.from.1)
        .bind::<BigInt, _>(queue.window)
        .bind::<Array<Text>, _>(&group.worker_ids)
        .bind::<Array<Double>, _>(&group.lease_seconds)
        .bind::<BigInt, _>(max_bytes)
        .bind::<Integer, _>(LARGE_PAYLOAD as i32)
        .cached()
        .load(conn)
        .await?;
    let key = QueueKey { namespace: group.namespace, name: queue.name.to_owned() };
    Ok(claimed(rows, &key))
}

fn claimed(rows: Vec<QueueRow>, queue: &QueueKey) -> Claimed {
    let Some(&QueueRow { candidates, head, .. }) = rows.as_slice().first() else { return Claimed::default() };
    let mut entries: Vec<ClaimedEntry> = rows.into_iter().filter_map(|row| row.claimed).collect();
    entries.sort_by_key(|entry| entry.slot);
    // The next claim may begin behind the last entry, unless an entry before it was skipped.
    let is_gapless = entries.last().is_some_and(|last| last.place + 1 == entries.len());
    let behind_last = entries.last().map(|ClaimedEntry { position: (rank, seq), .. }| (*rank, seq + 1));
    let (rank, seq) = behind_last.filter(|_| is_gapless).unwrap_or(head);
    let left = candidates - entries.len();
    let event = |ClaimedEntry { slot, delivery_id, row, .. }| {
        let next = (queue.clone(), rank, seq);
        ClaimedEvent { slot, next, delivery_id, subscription_id: None, replay_of: None, row }
    };
    Claimed {
        left: (left > 0).then(|| (queue.clone(), left)).into_iter().collect(),
        events: entries.into_iter().map(event).collect(),
    }
}
