//! `reset`, `retry`, `cancel`: operators' verbs.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

use super::body::{path_id, read_nothing};
use super::events::read_filter;
use super::query::read_query;
use super::view::EventView;
use crate::domain::limits;
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::engine::Engine;
use crate::engine::operate::{Holder, ResetPreview};
use crate::error::Error;

/// An event that somebody has held so long without a sign of life looks orphaned.
pub const STALE_SECONDS: f64 = 30.0;

/// `POST /events/{id}/reset`.
pub async fn reset_event(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let reason = read_reason(&request)?.unwrap_or_else(|| "operator".into());
    read_nothing(&request, payload).await?;
    let row = engine.reset_event(scope, id, reason).await?;
    Ok(HttpResponse::Ok().json(EventView::whole(&row)))
}

/// `POST /events/{id}/retry`.
pub async fn retry_event(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let reason = read_reason(&request)?;
    read_nothing(&request, payload).await?;
    let row = engine.retry_event(scope, id, reason).await?;
    Ok(HttpResponse::Ok().json(EventView::whole(&row)))
}

/// `POST /events/{id}/cancel`.
pub async fn cancel_event(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let reason = read_reason(&request)?;
    read_nothing(&request, payload).await?;
    let row = engine.cancel_event(scope, id, reason).await?;
    Ok(HttpResponse::Ok().json(EventView::whole(&row)))
}

/// `POST /events/reset`: all leases that have run out, and with `stale_for` all work whose
/// worker has been silent for so long.
pub async fn reset_stale(
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
    read_nothing(&request, payload).await?;
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

/// `POST /events/retry`: all that match.
pub async fn retry_events(
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
    read_nothing(&request, payload).await?;
    let outcome = engine.retry_events(scope, filter, dry_run).await?;
    Ok(HttpResponse::Ok().json(json!({ "retried": outcome.count, "more": outcome.more, "dry_run": dry_run })))
}

/// Reads `reason`, the only parameter of most verbs.
pub fn read_reason(request: &HttpRequest) -> Result<Option<String>, Error> {
    let mut query = read_query(request)?;
    let reason = query.text("reason", limits::NAME_CHARS);
    query.finish()?;
    Ok(reason)
}
