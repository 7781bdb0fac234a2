//! `/deliveries`: reads pushes with their attempts, and retries, cancels or dead-letters one.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use chrono::TimeDelta;
use serde::Serialize;

use super::body::{expect_empty_body, path_id};
use super::doors::Admitted;
use super::events::STATES;
use super::operate::read_reason;
use super::query::{DEFAULT_PAGE, Query, expect_no_query, read_page, read_query};
use super::redaction::redaction_for;
use super::view::{Timestamp, timestamp};
use crate::domain::api_key::Principal;
use crate::domain::history::Numbers;
use crate::domain::ids::{DeliveryId, EventId, SubscriptionId};
use crate::domain::limits;
use crate::domain::redaction::Redaction;
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::lists::pushes::{PushFilter, PushRow, get_push, list_pushes};
use crate::store::tables::event_log::LogEntry;
use crate::store::tables::push_log::attempts_of_push;

/// The maximum number of attempts in the view of a delivery. The latest are shown; `/logs` has all.
pub(crate) const ATTEMPTS_PER_DELIVERY: i64 = 500;

/// A push in a response.
#[derive(Serialize)]
pub(crate) struct DeliveryView<'a> {
    pub id: DeliveryId,
    pub event_id: EventId,
    pub subscription_id: SubscriptionId,
    pub status: &'static str,
    /// The number of attempts since the push was published, retried or replayed, whichever came last.
    pub attempts_made: i32,
    pub max_attempts: i32,
    pub next_attempt_at: Option<Timestamp>,
    pub lease_expires_at: Option<Timestamp>,
    pub cancel_requested: bool,
    pub cancel_reason: Option<&'a str>,
    pub ordering_key: Option<&'a str>,
    #[serde(skip)]
    has_payload_key: bool,
    pub last_error: Option<&'a str>,
    /// The fields that the caller may not see. Omitted if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<&'static [&'static str]>,
    pub replay_of: Option<i64>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Omitted in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Vec<AttemptView<'a>>>,
}

impl<'a> DeliveryView<'a> {
    /// Returns the view of a push without its attempts.
    pub(crate) fn of(row: &'a PushRow) -> Self {
        let status = row.status.0;
        DeliveryView {
            id: row.id,
            event_id: row.event_id,
            subscription_id: row.subscription_id,
            status: status.as_str(),
            // `retry_count` counts failures only, so a successful attempt is added.
            attempts_made: row.retry_count + i32::from(status == Status::Completed),
            max_attempts: row.max_retries,
            next_attempt_at: timestamp(row.due_at),
            lease_expires_at: timestamp(row.lease_expires_at),
            cancel_requested: row.cancel_requested,
            cancel_reason: row.cancel_reason.as_deref(),
            ordering_key: row.ordering_key.as_deref(),
            has_payload_key: row.has_payload_key,
            last_error: row.last_error.as_deref(),
            hidden: None,
            replay_of: row.replay_of,
            created_at: Timestamp(row.created_at),
            updated_at: Timestamp(row.updated_at),
            attempts: None,
        }
    }

    /// Hides what only callers with the scope `reveal` may see, unless this one has it.
    pub(crate) fn for_reader(mut self, reader: &Principal) -> Self {
        if !reader.may_reveal() {
            self.last_error = None;
            self.hidden = Some(&["last_error"]);
            self.hide_payload_key();
            self.attempts.iter_mut().flatten().for_each(AttemptView::hide);
        }
        self
    }

    /// Hides an ordering key that is a value of the payload if anything of payloads is redacted: the path that it was
    /// taken from may have been changed since.
    pub(crate) fn redacted(mut self, redaction: &Redaction) -> Self {
        if redaction.is_redacted("payload") {
            self.hide_payload_key();
        }
        self
    }

    fn hide_payload_key(&mut self) {
        if self.has_payload_key && self.ordering_key.take().is_some() {
            self.hidden = Some(if self.hidden.is_some() { &["last_error", "ordering_key"] } else { &["ordering_key"] });
        }
    }
}

/// An attempt in a response.
#[derive(Serialize)]
pub(crate) struct AttemptView<'a> {
    pub attempt: i32,
    pub started_at: Timestamp,
    pub duration_ms: Option<i64>,
    pub status_code: Option<i32>,
    pub error_kind: Option<&'a str>,
    pub error_message: Option<&'a str>,
    pub response_excerpt: Option<&'a str>,
    /// The fields that the caller may not see. Omitted if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<&'static [&'static str]>,
    pub subscription_version: Option<i32>,
    pub next_attempt_at: Option<Timestamp>,
}

impl<'a> AttemptView<'a> {
    pub(crate) fn of(entry: &'a LogEntry) -> Self {
        let duration = TimeDelta::milliseconds(entry.execution_time_ms.unwrap_or(0));
        AttemptView {
            attempt: entry.attempt,
            started_at: Timestamp(entry.created_at - duration),
            duration_ms: entry.execution_time_ms,
            status_code: entry.status_code,
            error_kind: entry.error_kind.as_deref(),
            error_message: entry.error_message.as_deref(),
            response_excerpt: entry.response_excerpt.as_deref(),
            hidden: None,
            subscription_version: entry.subscription_version,
            next_attempt_at: timestamp(entry.next_retry_at),
        }
    }

    pub(crate) fn hide(&mut self) {
        (self.error_message, self.response_excerpt) = (None, None);
        self.hidden = Some(&["error_message", "response_excerpt"]);
    }
}

#[derive(Serialize)]
struct Deliveries<'a> {
    deliveries: Vec<DeliveryView<'a>>,
    next: Option<String>,
}

/// Reads the filter of the list.
pub(crate) fn read_filter(query: &mut Query) -> PushFilter {
    PushFilter {
        event_id: query.id("event_id"),
        subscription_id: query.id("subscription_id"),
        status: query.choice("status", Status::parse, STATES),
        since: query.timestamp("since"),
        until: query.timestamp("until"),
        failing: query.boolean("failing"),
    }
}

/// `GET /deliveries`: lists pushes without their attempts.
pub(crate) async fn list_deliveries(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let filter = read_filter(&mut query);
    let page = read_page(&mut query, DEFAULT_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_id(&engine, scope.namespace, "deliveries", Numbers::Ids, &filter).await?;
    let mut conn = engine.database().connection().await?;
    let (rows, end) = list_pushes(&mut conn, &scope, &filter, page).await?;
    drop(conn);
    let redaction = redaction_for(&engine, &scope, admitted.principal()).await?;
    let view = |row| DeliveryView::of(row).for_reader(admitted.principal()).redacted(&redaction);
    let deliveries = rows.iter().map(view).collect();
    Ok(HttpResponse::Ok().json(Deliveries { deliveries, next: cursors.next(end).await? }))
}

/// `GET /deliveries/{id}`: returns a push with its attempts.
pub(crate) async fn get_delivery(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    expect_no_query(&request)?;
    let redaction = redaction_for(&engine, &scope, admitted.principal()).await?;
    let mut conn = engine.database().connection().await?;
    let row = get_push(&mut conn, &scope, id).await?.ok_or(Error::DeliveryNotFound(id))?;
    let attempts = attempts_of_push(&mut conn, &scope, id, row.created_at, ATTEMPTS_PER_DELIVERY).await?;
    let mut view = DeliveryView::of(&row);
    view.attempts = Some(attempts.iter().map(AttemptView::of).collect());
    Ok(HttpResponse::Ok().json(view.for_reader(admitted.principal()).redacted(&redaction)))
}

/// `POST /deliveries/{id}/retry`: returns a FAILED or CANCELLED push to PENDING.
pub(crate) async fn retry_delivery(
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
    let row = engine.retry_delivery(scope, id, reason).await?;
    Ok(HttpResponse::Ok().json(DeliveryView::of(&row).for_reader(admitted.principal()).redacted(&redaction)))
}

/// `POST /deliveries/{id}/cancel`: cancels a push, or requests that if it is being sent.
pub(crate) async fn cancel_delivery(
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
    let row = engine.cancel_delivery(scope, id, reason).await?;
    Ok(HttpResponse::Ok().json(DeliveryView::of(&row).for_reader(admitted.principal()).redacted(&redaction)))
}

/// `POST /deliveries/{id}/dead-letter`: moves a PENDING push to the dead letters.
pub(crate) async fn dead_letter_delivery(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let mut query = read_query(&request)?;
    let reason = query.required("reason", |query, name| query.text(name, limits::NAME_CHARS));
    let reason = query.finish_with(reason)?;
    expect_empty_body(&request, payload).await?;
    let redaction = redaction_for(&engine, &scope, admitted.principal()).await?;
    let row = engine.dead_letter_delivery(scope, id, reason).await?;
    Ok(HttpResponse::Ok().json(DeliveryView::of(&row).for_reader(admitted.principal()).redacted(&redaction)))
}
