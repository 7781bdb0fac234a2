//! `/metrics`: metrics for Prometheus.

use actix_web::web::Data;
use actix_web::{HttpMessage, HttpRequest, HttpResponse};
use tokio::time::Instant;

use super::doors::Admitted;
use super::probe_turns::{ProbeTurns, Turns};
use super::query::expect_no_query;
use crate::domain::api_key::KeyScope;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::connection::database::PATIENCE;
use crate::store::lists::gauges::read_gauges;

/// The maximum number of queues that are searched for the oldest delivery.
const MAX_QUEUES: usize = 1_000;

/// `GET /metrics`: returns the metrics. While the database is unavailable, gauges keep their last values. A caller that
/// is no administrator gets the series of their own namespace, and nothing about the server.
pub(crate) async fn get_metrics(
    engine: Data<Engine>,
    turns: Data<ProbeTurns>,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    if let Err(error) = refresh(&engine, &turns.gauges).await {
        log::warn!("the gauges could not be read: {error}");
    }
    let is_server_wide = |admitted: &Admitted| admitted.principal().scopes.allow(KeyScope::Admin);
    let text = match request.extensions().get::<Admitted>().filter(|admitted| !is_server_wide(admitted)) {
        Some(admitted) => engine.metrics().text_of(admitted.principal().namespace.0),
        None => engine.metrics().text(),
    };
    let text = text.map_err(|error| Error::Internal(error.to_string()))?;
    Ok(HttpResponse::Ok().content_type("application/openmetrics-text; version=1.0.0; charset=utf-8").body(text))
}

/// Reads the gauges that come from the database.
async fn refresh(engine: &Engine, turns: &Turns) -> Result<(), Error> {
    let mut queues = engine.subscription_cache().queues();
    queues.truncate(MAX_QUEUES);
    let deadline = Instant::now() + PATIENCE;
    let _turn = turns.take_by(deadline).await?;
    let mut conn = engine.database().connection_by(deadline).await?;
    let limit = engine.settings().list_scan_rows;
    let gauges = read_gauges(&mut conn, engine.now(), &queues, limit).await?;
    engine.metrics().pushes_pending.set(gauges.pushes_pending);
    engine.metrics().oldest_push_seconds.set(gauges.oldest_push_seconds.unwrap_or(0.0).max(0.0));
    engine.metrics().breakers_open.set(gauges.breakers_open);
    Ok(())
}
