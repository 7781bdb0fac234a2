//! `/metrics`: metrics for Prometheus.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use super::query::expect_no_query;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::lists::gauges::read_gauges;

/// The maximum number of queues that are searched for the oldest delivery.
const MAX_QUEUES: usize = 1_000;

/// `GET /metrics`: returns the metrics. While the database is unavailable, gauges keep their last values.
pub(crate) async fn get_metrics(engine: Data<Engine>, request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    if let Err(error) = refresh(&engine).await {
        log::warn!("the gauges could not be read: {error}");
    }
    let text = engine.metrics().text().map_err(|error| Error::Internal(error.to_string()))?;
    Ok(HttpResponse::Ok().content_type("application/openmetrics-text; version=1.0.0; charset=utf-8").body(text))
}

/// Reads the gauges that come from the database.
async fn refresh(engine: &Engine) -> Result<(), Error> {
    let mut queues = engine.subscription_cache().queues();
    queues.truncate(MAX_QUEUES);
    let mut conn = engine.database().connection().await?;
    let limit = engine.settings().list_scan_rows;
    let gauges = read_gauges(&mut conn, &engine.scope(), &queues, limit).await?;
    engine.metrics().pushes_pending.set(gauges.pushes_pending);
    engine.metrics().oldest_push_seconds.set(gauges.oldest_push_seconds.unwrap_or(0.0).max(0.0));
    engine.metrics().breakers_open.set(gauges.breakers_open);
    Ok(())
}
