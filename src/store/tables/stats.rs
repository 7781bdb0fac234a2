//! Stats: what each server has done, by minute and by hour.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Integer, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{EventKey, NamespaceId};
use crate::domain::stats::{Counter, Counts};
use crate::store::connection::cached::CachedExt;
use crate::store::statement::{Statement, statement};

/// A minute or an hour, by its number since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Period {
    Minute(i64),
    Hour(i64),
}

impl Period {
    fn start(self) -> DateTime<Utc> {
        let seconds = match self {
            Period::Minute(number) => number * 60,
            Period::Hour(number) => number * 3_600,
        };
        DateTime::from_timestamp(seconds, 0).unwrap_or_default()
    }
}

/// What a server has done in a period.
#[derive(Debug)]
pub struct StatsRow {
    pub period: Period,
    pub namespace: NamespaceId,
    /// Empty for the totals of the namespace.
    pub tag: String,
    pub counts: Counts,
}

/// The statement behind [`record_stats`], public for the cost tests.
pub const RECORD_STATS: Statement = statement!("record_stats");

/// Stores the counts of a server, in place of those that it stored before in an earlier revision.
pub async fn record_stats(
    conn: &mut AsyncPgConnection,
    server: i64,
    revision: i32,
    rows: &[StatsRow],
) -> QueryResult<()> {
    let counts = |counter: Counter| rows.iter().map(|row| row.counts.get(counter)).collect::<Vec<i32>>();
    let latencies = |pick: fn((i16, i32)) -> i32| {
        let list = |row: &StatsRow| array_literal(row.counts.latencies.counts().map(pick));
        rows.iter().map(list).collect::<Vec<String>>()
    };
    RECORD_STATS
        .query()
        .bind::<BigInt, _>(server)
        .bind::<Integer, _>(revision)
        .bind::<Array<Bool>, _>(rows.iter().map(|row| matches!(row.period, Period::Hour(_))).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(rows.iter().map(|row| row.namespace).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(rows.iter().map(|row| row.tag.as_str()).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(rows.iter().map(|row| row.period.start()).collect::<Vec<_>>())
        .bind::<Array<Integer>, _>(counts(Counter::Published))
        .bind::<Array<Integer>, _>(counts(Counter::Claimed))
        .bind::<Array<Integer>, _>(counts(Counter::Completed))
        .bind::<Array<Integer>, _>(counts(Counter::Failed))
        .bind::<Array<Integer>, _>(counts(Counter::Retried))
        .bind::<Array<Integer>, _>(counts(Counter::Released))
        .bind::<Array<Integer>, _>(counts(Counter::Reset))
        .bind::<Array<Integer>, _>(counts(Counter::Expired))
        .bind::<Array<Integer>, _>(counts(Counter::PushesSucceeded))
        .bind::<Array<Integer>, _>(counts(Counter::PushesFailed))
        .bind::<Array<Integer>, _>(counts(Counter::DeadLettered))
        .bind::<Array<Text>, _>(latencies(|(bucket, _)| bucket.into()))
        .bind::<Array<Text>, _>(latencies(|(_, count)| count))
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Returns an array as PostgreSQL writes it. An array of arrays would need them to have the same length.
fn array_literal(numbers: impl Iterator<Item = i32>) -> String {
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    format!("{{{}}}", numbers.join(","))
}

/// What stats need to know of an event.
#[derive(Debug, QueryableByName)]
pub(crate) struct PublishedEvent {
    /// The number of the event in the order given, from 1.
    #[diesel(sql_type = BigInt)]
    pub ord: i64,
    /// The tags, separated by commas.
    #[diesel(sql_type = Text)]
    pub tags: String,
    #[diesel(sql_type = Timestamptz)]
    pub created_at: DateTime<Utc>,
}

/// Returns the tags of events and when they were published. Events that do not exist are left out.
pub(crate) async fn find_published_events(
    conn: &mut AsyncPgConnection,
    events: &[EventKey],
) -> QueryResult<Vec<PublishedEvent>> {
    statement!("find_published_events")
        .query()
        .bind::<Array<Integer>, _>(events.iter().map(|event| event.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(events.iter().map(|event| event.id).collect::<Vec<_>>())
        .cached()
        .load(conn)
        .await
}
