//! Endpoints: circuit breakers and pauses of the URLs that pushes go to, and rate limits of
//! subscriptions.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{OptionalExtension, QueryableByName};
use diesel::sql_types::{Array, BigInt, Bool, Double, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{NamespaceId, SubscriptionId, SubscriptionKey};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;

/// Whether pushes may be sent to a subscription now.
#[derive(Debug, Clone, QueryableByName)]
pub struct EndpointGate {
    #[diesel(sql_type = Integer)]
    namespace_id: NamespaceId,
    #[diesel(sql_type = BigInt)]
    subscription_id: SubscriptionId,
    #[diesel(sql_type = Integer)]
    pub version: i32,
    #[diesel(sql_type = Bool)]
    pub is_active: bool,
    #[diesel(sql_type = Text)]
    pub url: String,
    /// The number of consecutive failures of the endpoint.
    #[diesel(sql_type = Integer)]
    pub failures_in_row: i32,
    /// Whether the endpoint's circuit breaker is open.
    #[diesel(sql_type = Bool)]
    pub is_open: bool,
    /// The seconds until the endpoint's pause ends. `None` if it is not paused.
    #[diesel(sql_type = Nullable<Double>)]
    pub paused_for: Option<f64>,
}

impl EndpointGate {
    pub fn subscription(&self) -> SubscriptionKey {
        self.namespace_id.subscription(self.subscription_id)
    }

    pub fn endpoint(&self) -> EndpointKey<'_> {
        EndpointKey { namespace: self.namespace_id, url: &self.url }
    }
}

/// An endpoint of a namespace. Two namespaces that push to the same URL share neither its breaker nor its pauses: one
/// of them must not be able to stop the pushes of the other. Keys are in the order in which rows are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointKey<'a> {
    pub namespace: NamespaceId,
    pub url: &'a str,
}

/// The namespaces and the URLs of endpoints, as two lists for a statement.
fn columns<'a>(endpoints: impl IntoIterator<Item = EndpointKey<'a>>) -> (Vec<NamespaceId>, Vec<&'a str>) {
    endpoints.into_iter().map(|endpoint| (endpoint.namespace, endpoint.url)).unzip()
}

/// Reads whether pushes may be sent to `subscriptions`.
pub(crate) async fn read_endpoint_gates(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    subscriptions: &[SubscriptionKey],
) -> QueryResult<Vec<EndpointGate>> {
    statement!("read_endpoint_gates")
        .query()
        .bind::<Array<Integer>, _>(subscriptions.iter().map(|key| key.namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(subscriptions.iter().map(|key| key.id).collect::<Vec<_>>())
        .bind::<Nullable<Timestamptz>, _>(now)
        .cached()
        .load(conn)
        .await
}

/// Takes the right to probe an endpoint whose breaker is open and whose pause is over. No other server
/// gets it for `seconds`. Returns whether it was taken.
pub(crate) async fn take_probe(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    endpoint: EndpointKey<'_>,
    seconds: f64,
) -> QueryResult<bool> {
    let taken = statement!("take_probe")
        .query()
        .bind::<Integer, _>(endpoint.namespace)
        .bind::<Text, _>(endpoint.url)
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Double, _>(seconds)
        .cached()
        .execute(conn)
        .await?;
    Ok(taken > 0)
}

/// Returns the right to probe endpoints, so that the next server may take it. Locks the rows in the order of
/// their keys, as all statements do, which prevents deadlocks.
pub(crate) async fn return_probes(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    endpoints: &[EndpointKey<'_>],
) -> QueryResult<()> {
    let (namespaces, urls) = columns(endpoints.iter().copied());
    statement!("return_probes")
        .query()
        .bind::<Array<Integer>, _>(namespaces)
        .bind::<Array<Text>, _>(urls)
        .bind::<Nullable<Timestamptz>, _>(now)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Pauses each endpoint for its number of seconds. A longer pause stays. Rows are locked in the order of their
/// keys, which prevents deadlocks.
pub(crate) async fn pause_endpoints(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    pauses: &BTreeMap<EndpointKey<'_>, f64>,
) -> QueryResult<()> {
    let (namespaces, urls) = columns(pauses.keys().copied());
    statement!("pause_endpoints")
        .query()
        .bind::<Array<Integer>, _>(namespaces)
        .bind::<Array<Text>, _>(urls)
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<Double>, _>(pauses.values().copied().collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// When a circuit breaker opens, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct BreakerRule {
    /// The number of consecutive failures that opens the breaker.
    pub failures: i32,
    /// The seconds for which nothing is sent.
    pub seconds: f64,
}

#[derive(QueryableByName)]
struct Flag {
    #[diesel(sql_type = Bool)]
    flag: bool,
}

/// An endpoint whose breaker was opened or closed.
#[derive(Debug, QueryableByName)]
pub(crate) struct ChangedEndpoint {
    #[diesel(sql_type = Integer)]
    pub namespace_id: NamespaceId,
    #[diesel(sql_type = Text)]
    pub url: String,
}

/// New failures of one endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    pub count: i32,
    /// Whether one of them was a failed probe.
    pub has_probe: bool,
}

/// Adds failures to endpoints, and opens the breakers of those that reach the limit of `rule`. Returns the
/// endpoints whose breakers were opened.
pub(crate) async fn record_endpoint_failures(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    failures: &BTreeMap<EndpointKey<'_>, Failures>,
    rule: BreakerRule,
) -> QueryResult<Vec<ChangedEndpoint>> {
    let (namespaces, urls) = columns(failures.keys().copied());
    statement!("record_endpoint_failures")
        .query()
        .bind::<Array<Integer>, _>(namespaces)
        .bind::<Array<Text>, _>(urls)
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<Integer>, _>(failures.values().map(|failures| failures.count).collect::<Vec<_>>())
        .bind::<Array<Bool>, _>(failures.values().map(|failures| failures.has_probe).collect::<Vec<_>>())
        .bind::<Integer, _>(rule.failures)
        .bind::<Double, _>(rule.seconds)
        .cached()
        .load(conn)
        .await
}

/// Resets the failures of endpoints and closes their breakers. Returns the endpoints whose breakers were
/// open.
pub(crate) async fn record_endpoint_successes(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    endpoints: &[EndpointKey<'_>],
) -> QueryResult<Vec<ChangedEndpoint>> {
    let (namespaces, urls) = columns(endpoints.iter().copied());
    statement!("record_endpoint_successes")
        .query()
        .bind::<Array<Integer>, _>(namespaces)
        .bind::<Array<Text>, _>(urls)
        .bind::<Nullable<Timestamptz>, _>(now)
        .cached()
        .load(conn)
        .await
}

/// Ends an endpoint's pause, closes its breaker and resets its failures. Returns whether the breaker was
/// open.
pub(crate) async fn resume_endpoint(conn: &mut AsyncPgConnection, scope: &Scope, url: &str) -> QueryResult<bool> {
    let row: Option<Flag> = statement!("resume_endpoint")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Text, _>(url)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .cached()
        .load_one(conn)
        .await
        .optional()?;
    Ok(row.is_some_and(|row| row.flag))
}

/// The state of an endpoint. The migration describes the columns.
#[derive(Debug, Clone, QueryableByName)]
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

/// Returns the state of endpoints. Endpoints without a row are left out.
pub(crate) async fn load_endpoints(
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

/// The requests that a subscription's rate limiter allows now.
#[derive(Debug, Clone, QueryableByName)]
pub struct Grant {
    #[diesel(sql_type = Integer)]
    namespace_id: NamespaceId,
    #[diesel(sql_type = BigInt)]
    subscription_id: SubscriptionId,
    /// The number of requests.
    #[diesel(sql_type = BigInt)]
    pub granted: i64,
    /// The seconds until the next request is allowed.
    #[diesel(sql_type = Double)]
    pub next_in: f64,
}

impl Grant {
    pub fn subscription(&self) -> SubscriptionKey {
        self.namespace_id.subscription(self.subscription_id)
    }
}

/// Takes requests from the rate limiters of subscriptions. `wanted` has the subscription, its rate per
/// second, and the maximum number of requests to take.
pub(crate) async fn take_from_rates(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    wanted: &[(SubscriptionKey, f64, i64)],
) -> QueryResult<Vec<Grant>> {
    // All servers lock the rows in the order of their keys, which prevents deadlocks.
    let mut wanted = wanted.to_vec();
    wanted.sort_unstable_by_key(|(key, _, _)| *key);
    let namespaces: Vec<NamespaceId> = wanted.iter().map(|(key, _, _)| key.namespace).collect();
    let ids: Vec<SubscriptionId> = wanted.iter().map(|(key, _, _)| key.id).collect();
    let add = statement!("add_rates").query().bind::<Array<Integer>, _>(&namespaces);
    add.bind::<Array<BigInt>, _>(&ids).cached().execute(conn).await?;
    statement!("take_from_rates")
        .query()
        .bind::<Array<Integer>, _>(&namespaces)
        .bind::<Array<BigInt>, _>(&ids)
        .bind::<Array<Double>, _>(wanted.iter().map(|(_, rate, _)| *rate).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(wanted.iter().map(|(_, _, most)| *most).collect::<Vec<_>>())
        .bind::<Nullable<Timestamptz>, _>(now)
        .cached()
        .load(conn)
        .await
}

/// Returns requests that were taken from a rate limiter and not used.
pub(crate) async fn return_to_rate(
    conn: &mut AsyncPgConnection,
    subscription: SubscriptionKey,
    rate: f64,
    unused: i64,
) -> QueryResult<()> {
    statement!("return_to_rate")
        .query()
        .bind::<Integer, _>(subscription.namespace)
        .bind::<BigInt, _>(subscription.id)
        .bind::<Double, _>(rate)
        .bind::<Double, _>(unused as f64)
        .cached()
        .execute(conn)
        .await
        .map(drop)
}
