//! `reset`, `retry` and `cancel`: operations on events for operators.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

use super::body::{expect_empty_body, path_id};
use super::events::read_filter;
use super::query::read_query;
use super::view::EventView;
use crate::domain::limits;
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::engine::Engine;
use crate::engine::operate::{Holder, ResetPreview};
use crate::error::Error;

/// A worker counts as stale in `/workers` if an event that it holds has not changed for this long.
pub(crate) const STALE_SECONDS: f64 = 30.0;

/// `POST /events/{id}/reset`: returns a PROCESSING event to PENDING.
pub(crate) async fn reset_event(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let reason = read_reason(&request)?.unwrap_or_else(|| "operator".into());
    expect_empty_body(&request, payload).await?;
    let row = engine.reset_event(scope, id, reason).await?;
    Ok(HttpResponse::Ok().json(EventView::whole(&row)))
}

/// `POST /events/{id}/retry`: returns a FAILED or CANCELLED event to PENDING.
pub(crate) async fn retry_event(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let reason = read_reason(&request)?;
    expect_empty_body(&request, payload).await?;
    let row = engine.retry_event(scope, id, reason).await?;
    Ok(HttpResponse::Ok().json(EventView::whole(&row)))
}

/// `POST /events/{id}/cancel`: cancels an event, or requests that if a worker holds it.
pub(crate) async fn cancel_event(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let reason = read_reason(&request)?;
    expect_empty_body(&request, payload).await?;
    let row = engine.cancel_event(scope, id, reason).await?;
    Ok(HttpResponse::Ok().json(EventView::whole(&row)))
}

/// `POST /events/reset`: resets all events whose lease has expired. With `stale_for`, resets all
/// events whose worker has been silent for that many seconds.
pub(crate) async fn reset_stale(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let reason = query.text("reason", limits::NAME_CHARS).unwrap_or_else(|| "operator".into());
    let stale_for = query.number("stale_for", 0.0..=limits::DELAY_SECONDS as f64);
    let dry_run = query.boolean("dry_run").unwrap_or(false);
    query.finish()?;
    expect_empty_body(&request, payload).await?;
    if dry_run {
        let ResetPreview { outcome, holders } = engine.preview_reset(scope, stale_for).await?;
        let view =
            json!({ "reset": outcome.count, "more": outcome.more, "dry_run": true, "workers": holders_view(&holders) });
        return Ok(HttpResponse::Ok().json(view));
    }
    let outcome = engine.reset_stale(scope, stale_for, reason).await?;
    Ok(HttpResponse::Ok().json(json!({ "reset": outcome.count, "more": outcome.more, "dry_run": false })))
}

fn holders_view(holders: &[Holder]) -> Vec<Value> {
    let view = |Holder { worker_id, events, event_ids }: &Holder| json!({ "worker_id": worker_id, "events": events, "event_ids": event_ids });
    holders.iter().map(view).collect()
}

/// `POST /events/retry`: retries all events that match the filter.
pub(crate) async fn retry_events(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let mut filter = read_filter(&mut query);
    let dry_run = query.boolean("dry_run").unwrap_or(false);
    let status = *filter.status.get_or_insert(Status::Failed);
    if !matches!(status, Status::Failed | Status::Cancelled) {
        query.refuse("status", "must be one of FAILED, CANCELLED");
    }
    query.finish()?;
    expect_empty_body(&request, payload).await?;
    let outcome = engine.retry_events(scope, filter, dry_run).await?;
    Ok(HttpResponse::Ok().json(json!({ "retried": outcome.count, "more": outcome.more, "dry_run": dry_run })))
}

/// Reads the query of operations whose only parameter is `reason`.
pub(crate) fn read_reason(request: &HttpRequest) -> Result<Option<String>, Error> {
    let mut query = read_query(request)?;
    let reason = query.text("reason", limits::NAME_CHARS);
    query.finish()?;
    Ok(reason)
}
