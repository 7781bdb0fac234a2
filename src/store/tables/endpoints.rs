//! Endpoints: how the places are doing that pushes go to, and what may be sent there now.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{OptionalExtension, QueryableByName};
use diesel::sql_types::{Array, BigInt, Bool, Double, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::SubscriptionId;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;

/// Whether anything may be sent to a subscription now.
#[derive(Debug, Clone, QueryableByName)]
pub struct EndpointGate {
    /// The subscription.
    #[diesel(sql_type = BigInt)]
    pub subscription_id: SubscriptionId,
    /// Its version.
    #[diesel(sql_type = Integer)]
    pub version: i32,
    /// Whether it is switched on.
    #[diesel(sql_type = Bool)]
    pub is_active: bool,
    /// Its endpoint.
    #[diesel(sql_type = Text)]
    pub url: String,
    /// How often in a row the endpoint has failed.
    #[diesel(sql_type = Integer)]
    pub failures_in_row: i32,
    /// Whether the endpoint's breaker is open.
    #[diesel(sql_type = Bool)]
    pub is_open: bool,
    /// For how many more seconds nothing may be sent.
    #[diesel(sql_type = Nullable<Double>)]
    pub paused_for: Option<f64>,
}

/// Looks whether anything may be sent to these subscriptions.
pub async fn read_endpoint_gates(
    conn: &mut AsyncPgConnection,
    subscription_ids: &[SubscriptionId],
    now: Option<DateTime<Utc>>,
) -> QueryResult<Vec<EndpointGate>> {
    statement!("read_endpoint_gates")
        .query()
        .bind::<Array<BigInt>, _>(subscription_ids)
        .bind::<Nullable<Timestamptz>, _>(now)
        .cached()
        .load(conn)
        .await
}

/// Takes the right to send one request to an endpoint whose breaker is open and whose pause is
/// over. Nobody else gets it for `seconds`.
pub async fn take_probe(conn: &mut AsyncPgConnection, scope: &Scope, url: &str, seconds: f64) -> QueryResult<bool> {
    let taken = statement!("take_probe")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Text, _>(url)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Double, _>(seconds)
        .cached()
        .execute(conn)
        .await?;
    Ok(taken > 0)
}

/// Gives that right back for these endpoints: whoever comes next may have it. Rows are locked in the
/// order of their URLs' bytes, as everywhere, so that nobody waits in a circle.
pub async fn return_probes(conn: &mut AsyncPgConnection, scope: &Scope, urls: &[&str]) -> QueryResult<()> {
    statement!("return_probes")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<Text>, _>(urls)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Sends nothing to each of these endpoints for as many seconds. A longer pause stays. URLs come once
/// each and in order, so that nobody waits in a circle.
pub async fn pause_endpoints(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    urls: &[&str],
    seconds: &[f64],
) -> QueryResult<()> {
    statement!("pause_endpoints")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<Text>, _>(urls)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Array<Double>, _>(seconds)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct BreakerRule {
    /// After so many failures in a row.
    pub failures: i32,
    /// For so many seconds.
    pub seconds: f64,
}

#[derive(QueryableByName)]
struct Flag {
    #[diesel(sql_type = Bool)]
    flag: bool,
}

#[derive(QueryableByName)]
struct UrlRow {
    #[diesel(sql_type = Text)]
    url: String,
}

/// Failures of one endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failures {
    /// How many.
    pub count: i32,
    /// Whether one of them was of a request that tried it out.
    pub has_probe: bool,
}

/// Counts failures of endpoints; the one that is too many opens an endpoint's breaker. Returns the
/// endpoints whose breakers were opened.
pub async fn record_endpoint_failures(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    failures: &BTreeMap<&str, Failures>,
    rule: BreakerRule,
) -> QueryResult<Vec<String>> {
    let probed = failures.iter().filter(|(_, failures)| failures.has_probe).map(|(url, _)| *url);
    let opened: Vec<UrlRow> = statement!("record_endpoint_failures")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<Text>, _>(failures.keys().copied().collect::<Vec<_>>())
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Array<Integer>, _>(failures.values().map(|failures| failures.count).collect::<Vec<_>>())
        .bind::<Integer, _>(rule.failures)
        .bind::<Double, _>(rule.seconds)
        .bind::<Array<Text>, _>(probed.collect::<Vec<_>>())
        .cached()
        .load(conn)
        .await?;
    Ok(opened.into_iter().map(|row| row.url).collect())
}

/// Forgets endpoints' failures. Returns the endpoints whose breakers that closed.
pub async fn record_endpoint_successes(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    urls: &[&str],
) -> QueryResult<Vec<String>> {
    let closed: Vec<UrlRow> = statement!("record_endpoint_successes")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<Text>, _>(urls)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .cached()
        .load(conn)
        .await?;
    Ok(closed.into_iter().map(|row| row.url).collect())
}

/// Lifts an endpoint's pause, closes its breaker and forgets its failures. Returns whether the
/// breaker was open.
pub async fn resume_endpoint(conn: &mut AsyncPgConnection, scope: &Scope, url: &str) -> QueryResult<bool> {
    let row: Option<Flag> = statement!("resume_endpoint")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Text, _>(url)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .cached()
        .get_result(conn)
        .await
        .optional()?;
    Ok(row.is_some_and(|row| row.flag))
}

/// How an endpoint is doing.
#[derive(Debug, Clone, QueryableByName)]
#[expect(missing_docs, reason = "the columns are described in the migration")]
pub struct EndpointRow {
    #[diesel(sql_type = Text)]
    pub url: String,
    #[diesel(sql_type = Integer)]
    pub failures_in_row: i32,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub opened_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub paused_until: Option<DateTime<Utc>>,
    #[diesel(sql_type = Timestamptz)]
    pub now: DateTime<Utc>,
}

/// How these endpoints are doing; those of which nothing is known are left out.
pub async fn load_endpoints(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    urls: &[&str],
) -> QueryResult<Vec<EndpointRow>> {
    statement!("load_endpoints")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Array<Text>, _>(urls)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .cached()
        .load(conn)
        .await
}

/// What a subscription with a rate may send now.
#[derive(Debug, Clone, QueryableByName)]
pub struct Grant {
    /// The subscription.
    #[diesel(sql_type = BigInt)]
    pub subscription_id: SubscriptionId,
    /// So many.
    #[diesel(sql_type = BigInt)]
    pub granted: i64,
    /// In how many seconds the next one.
    #[diesel(sql_type = Double)]
    pub next_in: f64,
}

/// Takes of the subscriptions' rates what is wanted and there.
pub async fn take_from_rates(
    conn: &mut AsyncPgConnection,
    wanted: &[(SubscriptionId, f64, i64)],
    now: Option<DateTime<Utc>>,
) -> QueryResult<Vec<Grant>> {
    // Locked in one order, so that servers which do this at once do not wait in a circle.
    let mut wanted = wanted.to_vec();
    wanted.sort_unstable_by_key(|(id, _, _)| *id);
    let ids: Vec<SubscriptionId> = wanted.iter().map(|(id, _, _)| *id).collect();
    statement!("add_rates").query().bind::<Array<BigInt>, _>(&ids).cached().execute(conn).await?;
    statement!("take_from_rates")
        .query()
        .bind::<Array<BigInt>, _>(&ids)
        .bind::<Array<Double>, _>(wanted.iter().map(|(_, rate, _)| *rate).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(wanted.iter().map(|(_, _, most)| *most).collect::<Vec<_>>())
        .bind::<Nullable<Timestamptz>, _>(now)
        .cached()
        .load(conn)
        .await
}

/// Gives back what was taken of a rate and not used.
pub async fn return_to_rate(
    conn: &mut AsyncPgConnection,
    subscription_id: SubscriptionId,
    rate: f64,
    unused: i64,
) -> QueryResult<()> {
    statement!("return_to_rate")
        .query()
        .bind::<BigInt, _>(subscription_id)
        .bind::<Double, _>(rate)
        .bind::<Double, _>(unused as f64)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}
