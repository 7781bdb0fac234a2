//! `/usage`: what the limits of the caller's namespace and key are, and where they stand.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::doors::Admitted;
use super::query::expect_no_query;
use crate::domain::api_key::Principal;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::engine::limits::{CountState, RateState};
use crate::error::Error;
use crate::store::tables::sources::count_sources;
use crate::store::tables::subscriptions::count_subscriptions;

#[derive(Serialize)]
pub(crate) struct Usage {
    pub namespace: NamespaceUsage,
    pub key: KeyUsage,
    /// The number of servers that share rates.
    pub servers: u32,
}

#[derive(Serialize)]
pub(crate) struct NamespaceUsage {
    pub publishes_per_second: Option<RateView>,
    pub waiting_events: CountView,
    pub stored_bytes: CountView,
    pub subscriptions: CountView,
    pub sources: CountView,
}

#[derive(Serialize)]
pub(crate) struct KeyUsage {
    pub publishes_per_second: Option<RateView>,
}

#[derive(Serialize)]
pub(crate) struct RateView {
    pub limit: u32,
    pub burst: u32,
    /// What this server accepts at once.
    pub available: i64,
}

impl RateView {
    fn of(state: RateState) -> Self {
        RateView { limit: state.rate.per_second, burst: state.rate.burst, available: state.available }
    }
}

#[derive(Serialize)]
pub(crate) struct CountView {
    pub limit: Option<i64>,
    pub used: Option<i64>,
}

impl CountView {
    fn of(CountState { limit, used }: CountState) -> Self {
        CountView { limit, used }
    }

    /// Returns a count that the server limits for every namespace, and possibly further for this one.
    fn exact(limit: Option<i64>, max: i64, used: i64) -> Self {
        CountView { limit: Some(limit.map_or(max, |limit| limit.min(max))), used: Some(used) }
    }
}

/// `GET /usage`: returns the limits of the caller.
pub(crate) async fn get_usage(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    Ok(HttpResponse::Ok().json(usage_of(&engine, admitted.principal(), &scope).await?))
}

/// Returns where the limits of a namespace and of a caller's key stand.
pub(crate) async fn usage_of(engine: &Engine, caller: &Principal, scope: &Scope) -> Result<Usage, Error> {
    let states = engine.limit_states(scope.namespace, caller).await?;
    let mut conn = engine.database().connection().await?;
    let subscriptions = count_subscriptions(&mut conn, scope).await?;
    let sources = count_sources(&mut conn, scope).await?;
    drop(conn);
    let settings = engine.settings();
    Ok(Usage {
        namespace: NamespaceUsage {
            publishes_per_second: states.namespace_rate.map(RateView::of),
            waiting_events: CountView::of(states.waiting_events),
            stored_bytes: CountView::of(states.stored_bytes),
            subscriptions: CountView::exact(states.subscriptions, settings.max_subscriptions, subscriptions),
            sources: CountView::exact(states.sources, settings.max_sources, sources),
        },
        key: KeyUsage { publishes_per_second: states.key_rate.map(RateView::of) },
        servers: engine.limit_use().servers(),
    })
}
