//! How pushes to subscriptions go, read from a bounded number of their newest ones.
//!
//! Attempts are found by their push and not by their subscription, so a rate over an hour would have to read all pushes of
//! that hour. A sample of the newest costs the same however many there are.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::SubscriptionId;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;
use crate::store::tables::event_log::LogEntry;

/// The limits of a sample.
#[derive(Debug, Clone, Copy)]
pub struct HealthSample {
    /// The number up to which pushes that can be sent are counted.
    pub waiting: i64,
    /// The number of newest pushes of each subscription that are read.
    pub scan: i64,
    /// The number of them whose attempts are looked up.
    pub pushes: i64,
    /// The number of newest dead letters of each subscription that are read.
    pub dead_letters: i64,
}

/// How the newest pushes of a subscription went.
#[derive(Debug, Clone, QueryableByName)]
pub struct SubscriptionHealth {
    #[diesel(sql_type = BigInt)]
    pub subscription_id: SubscriptionId,
    /// Pushes that can be sent, counted up to the limit + 1.
    #[diesel(sql_type = BigInt)]
    ready: i64,
    /// Those of them that wait: for their turn, for another attempt, or behind others of their ordering key.
    #[diesel(sql_type = BigInt)]
    pending: i64,
    /// The attempts in the sample: the last one of each push.
    #[diesel(sql_type = BigInt)]
    pub attempts: i64,
    #[diesel(sql_type = BigInt)]
    pub succeeded: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub p50_ms: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub p95_ms: Option<i64>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub last_attempt_at: Option<DateTime<Utc>>,
    /// Dead letters that were not replayed, among the newest of the limit + 1.
    #[diesel(sql_type = BigInt)]
    pub dead_letters: i64,
}

impl SubscriptionHealth {
    /// Returns the number of pushes that wait, as far as it is known, and whether it is no more than that. Pushes that
    /// cannot be sent yet are known only if they are among the newest.
    pub fn waiting(&self, sample: HealthSample) -> (i64, bool) {
        let is_all = self.ready <= sample.waiting && self.pending < sample.scan;
        (self.ready.min(sample.waiting).max(self.pending), is_all)
    }
}

/// Returns how pushes to `subscriptions` go.
pub async fn read_subscription_health(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    subscriptions: &[SubscriptionId],
    sample: HealthSample,
) -> QueryResult<Vec<SubscriptionHealth>> {
    statement!("read_subscription_health")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<BigInt>, _>(subscriptions)
        .bind::<BigInt, _>(sample.waiting)
        .bind::<BigInt, _>(sample.scan)
        .bind::<BigInt, _>(sample.pushes)
        .bind::<BigInt, _>(sample.dead_letters)
        .cached()
        .load(conn)
        .await
}

/// Returns the last `limit` attempts of the newest pushes of a subscription, the latest first.
pub async fn attempts_of_subscription(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    subscription: SubscriptionId,
    sample: HealthSample,
    limit: i64,
) -> QueryResult<Vec<LogEntry>> {
    statement!("attempts_of_subscription")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(subscription)
        .bind::<BigInt, _>(sample.scan)
        .bind::<BigInt, _>(sample.pushes)
        .bind::<BigInt, _>(limit)
        .cached()
        .load(conn)
        .await
}
