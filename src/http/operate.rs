//! `reset`, `retry` and `cancel` of one event, for operators. `operations.rs` has those of many.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};

use super::body::{expect_empty_body, path_id};
use super::doors::Admitted;
use super::query::read_query;
use super::redaction::redaction_for;
use super::view::EventView;
use crate::domain::limits;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;

/// A worker counts as stale in `/workers` if an event that it holds has not changed for this long.
pub(crate) const STALE_SECONDS: f64 = 30.0;

/// `POST /events/{id}/reset`: returns a PROCESSING event to PENDING.
pub(crate) async fn reset_event(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let reason = read_reason(&request)?.unwrap_or_else(|| "operator".into());
    expect_empty_body(&request, payload).await?;
    let redaction = redaction_for(&engine, &scope, admitted.principal()).await?;
    let event = engine.reset_event(scope, id, reason).await?;
    Ok(HttpResponse::Ok().json(EventView::detailed(&event, &redaction).for_reader(admitted.principal())))
}

/// `POST /events/{id}/retry`: returns a FAILED or CANCELLED event to PENDING.
pub(crate) async fn retry_event(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let reason = read_reason(&request)?;
    expect_empty_body(&request, payload).await?;
    let redaction = redaction_for(&engine, &scope, admitted.principal()).await?;
    let event = engine.retry_event(scope, id, reason).await?;
    Ok(HttpResponse::Ok().json(EventView::detailed(&event, &redaction).for_reader(admitted.principal())))
}

/// `POST /events/{id}/cancel`: cancels an event, or requests that if a worker holds it.
pub(crate) async fn cancel_event(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let reason = read_reason(&request)?;
    expect_empty_body(&request, payload).await?;
    let redaction = redaction_for(&engine, &scope, admitted.principal()).await?;
    let event = engine.cancel_event(scope, id, reason).await?;
    Ok(HttpResponse::Ok().json(EventView::detailed(&event, &redaction).for_reader(admitted.principal())))
}

/// Reads the query of requests whose only parameter is `reason`.
pub(crate) fn read_reason(request: &HttpRequest) -> Result<Option<String>, Error> {
    let mut query = read_query(request)?;
    let reason = query.text("reason", limits::NAME_CHARS);
    query.finish()?;
    Ok(reason)
}
