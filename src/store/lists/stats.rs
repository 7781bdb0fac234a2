//! Stats: the present state of a namespace in numbers, and what was done in it, at a bounded cost.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Bool, Double, Integer, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::EventId;
use crate::domain::scope::Scope;
use crate::domain::stats::Counter;
use crate::domain::stats::window::StatsWindow;
use crate::store::connection::whole_result::LoadOne;
use crate::store::lists::tags::TagRow;
use crate::store::statement::statement;

/// The limits of [`read_stats`].
#[derive(Debug, Clone, Copy)]
pub struct StatsCaps {
    /// The number up to which events that can be claimed are counted.
    pub waiting: i64,
    /// The number up to which everything else is counted.
    pub others: i64,
    /// The time without a sign of life after which a worker that holds something is stale.
    pub stale_seconds: f64,
}

/// The present state of a namespace. Counts go up to their cap + 1.
#[derive(Debug, QueryableByName)]
pub struct StatsNow {
    #[diesel(sql_type = Timestamptz)]
    pub at: DateTime<Utc>,
    #[diesel(sql_type = BigInt)]
    pub waiting: i64,
    /// The waiting event that was published first.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub oldest_id: Option<EventId>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub oldest_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Double>)]
    pub oldest_seconds: Option<f64>,
    /// Events that wait for their time.
    #[diesel(sql_type = BigInt)]
    pub delayed: i64,
    /// Those of them that have failed before.
    #[diesel(sql_type = BigInt)]
    pub retrying: i64,
    /// Events that wait behind others of their ordering key.
    #[diesel(sql_type = BigInt)]
    pub blocked: i64,
    /// The number of rows that were read to count the three numbers before.
    #[diesel(sql_type = BigInt)]
    pub later_read: i64,
    #[diesel(sql_type = BigInt)]
    pub running: i64,
    /// The number of rows that were read to count what is running.
    #[diesel(sql_type = BigInt)]
    pub running_read: i64,
    #[diesel(sql_type = BigInt)]
    pub stale_workers: i64,
    /// The number of workers that have called recently.
    #[diesel(sql_type = BigInt)]
    pub workers: i64,
    /// Events that have failed and are still kept.
    #[diesel(sql_type = BigInt)]
    pub failed: i64,
    #[diesel(sql_type = BigInt)]
    pub pushes_ready: i64,
    /// Pushes that wait for their time.
    #[diesel(sql_type = BigInt)]
    pub pushes_later: i64,
    /// The number of rows that were read to count the pushes that wait for their time.
    #[diesel(sql_type = BigInt)]
    pub pushes_read: i64,
    #[diesel(sql_type = BigInt)]
    pub breakers_open: i64,
    #[diesel(sql_type = BigInt)]
    pub dead_letters: i64,
}

/// Returns the present state of a namespace.
pub async fn read_stats(conn: &mut AsyncPgConnection, scope: &Scope, caps: StatsCaps) -> QueryResult<StatsNow> {
    statement!("read_stats")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Double, _>(caps.stale_seconds)
        .bind::<BigInt, _>(caps.waiting)
        .bind::<BigInt, _>(caps.others)
        .load_one(conn)
        .await
}

/// Returns the state of one tag. Waiting events are counted up to `count_cap` + 1.
pub async fn read_tag(conn: &mut AsyncPgConnection, scope: &Scope, tag: &str, count_cap: i64) -> QueryResult<TagRow> {
    statement!("read_tag")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Text, _>(tag)
        .bind::<BigInt, _>(count_cap)
        .load_one(conn)
        .await
}

/// What was done with the events of a tag in the latest minutes.
#[derive(Debug, QueryableByName)]
pub struct RecentCounts {
    /// Empty for the whole namespace.
    #[diesel(sql_type = Text)]
    pub tag: String,
    #[diesel(sql_type = BigInt)]
    pub published: i64,
    #[diesel(sql_type = BigInt)]
    pub claimed: i64,
    #[diesel(sql_type = BigInt)]
    pub completed: i64,
    #[diesel(sql_type = BigInt)]
    pub failed: i64,
    #[diesel(sql_type = BigInt)]
    pub pushes_succeeded: i64,
    #[diesel(sql_type = BigInt)]
    pub pushes_failed: i64,
}

/// Returns what was done since a minute with the events of each tag. An empty tag means the whole namespace.
pub async fn read_recent_counts(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    tags: &[&str],
    since: DateTime<Utc>,
) -> QueryResult<Vec<RecentCounts>> {
    statement!("read_stats_rates")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<Text>, _>(tags)
        .bind::<Timestamptz, _>(since)
        .load(conn)
        .await
}

/// What was done in one step of a window.
#[derive(Debug, QueryableByName)]
pub struct StatsPoint {
    #[diesel(sql_type = BigInt)]
    pub point: i64,
    #[diesel(sql_type = BigInt)]
    published: i64,
    #[diesel(sql_type = BigInt)]
    claimed: i64,
    #[diesel(sql_type = BigInt)]
    completed: i64,
    #[diesel(sql_type = BigInt)]
    failed: i64,
    #[diesel(sql_type = BigInt)]
    retried: i64,
    #[diesel(sql_type = BigInt)]
    released: i64,
    #[diesel(sql_type = BigInt)]
    reset: i64,
    #[diesel(sql_type = BigInt)]
    expired: i64,
    #[diesel(sql_type = BigInt)]
    pushes_succeeded: i64,
    #[diesel(sql_type = BigInt)]
    pushes_failed: i64,
    #[diesel(sql_type = BigInt)]
    dead_lettered: i64,
}

impl StatsPoint {
    pub fn get(&self, counter: Counter) -> i64 {
        match counter {
            Counter::Published => self.published,
            Counter::Claimed => self.claimed,
            Counter::Completed => self.completed,
            Counter::Failed => self.failed,
            Counter::Retried => self.retried,
            Counter::Released => self.released,
            Counter::Reset => self.reset,
            Counter::Expired => self.expired,
            Counter::PushesSucceeded => self.pushes_succeeded,
            Counter::PushesFailed => self.pushes_failed,
            Counter::DeadLettered => self.dead_lettered,
        }
    }
}

/// Binds the parameters that both statements about a window have. A macro, because each `bind` returns another type.
macro_rules! bind_window {
    ($query:expr, $scope:expr, $tag:expr, $window:expr) => {
        $query
            .bind::<Integer, _>($scope.namespace)
            .bind::<Text, _>($tag)
            .bind::<Timestamptz, _>($window.time_of($window.points.start))
            .bind::<Timestamptz, _>($window.time_of($window.points.end))
            .bind::<BigInt, _>($window.step.seconds())
            .bind::<Bool, _>($window.step.is_by_hour())
    };
}

/// Returns what was done with the events of a tag, by point. Points at which nothing was done are left out. An empty tag
/// means the whole namespace.
pub async fn read_stats_history(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    tag: &str,
    window: &StatsWindow,
) -> QueryResult<BTreeMap<i64, StatsPoint>> {
    let query = bind_window!(statement!("read_stats_history").query(), scope, tag, window);
    let points: Vec<StatsPoint> = query.load(conn).await?;
    Ok(points.into_iter().map(|point| (point.point, point)).collect())
}

#[derive(QueryableByName)]
struct BucketRow {
    #[diesel(sql_type = BigInt)]
    point: i64,
    #[diesel(sql_type = SmallInt)]
    bucket: i16,
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// Returns the latencies of the events of a tag that were completed, by point: how many there are in each bucket.
pub async fn read_stats_latencies(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    tag: &str,
    window: &StatsWindow,
) -> QueryResult<BTreeMap<i64, BTreeMap<i16, i64>>> {
    let query = bind_window!(statement!("read_stats_latencies").query(), scope, tag, window);
    let rows: Vec<BucketRow> = query.load(conn).await?;
    let mut points: BTreeMap<i64, BTreeMap<i16, i64>> = BTreeMap::new();
    for BucketRow { point, bucket, count } in rows {
        points.entry(point).or_default().insert(bucket, count);
    }
    Ok(points)
}
