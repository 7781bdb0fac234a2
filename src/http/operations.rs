//! Operators' work on many rows: `/events/retry`, `/events/cancel`, `/events/reset`, `/deliveries/retry`,
//! `/deliveries/cancel` and `/dead-letters/replay` start operations; `/operations` shows and cancels them.

use std::borrow::Cow;

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::body::{self, expect_no_input, path_id, read_json_without_query};
use super::dead_letters::{CONFIGS, DeadLetterView};
use super::deliveries::DeliveryView;
use super::doors::Admitted;
use super::event_filter::{check_search, read_json_filter};
use super::query::{DEFAULT_PAGE, expect_no_query, read_page, read_query};
use super::redaction::redaction_for;
use super::view::{EventView, Timestamp, timestamp};
use crate::domain::api_key::{KeyScope, Principal};
use crate::domain::dead_letter::{REASONS, ReplayConfig, parse_reason};
use crate::domain::history::Numbers;
use crate::domain::input::RawFields;
use crate::domain::json::RawJson;
use crate::domain::limits;
use crate::domain::operation::{OperationKind, OperationStatus};
use crate::domain::redaction::Redaction;
use crate::domain::scope::Scope;
use crate::domain::shown_filter::shown_filter;
use crate::domain::status::Status;
use crate::engine::Engine;
use crate::engine::operate::operations::filter::{HeldFilter, OperationFilter, RowFilter};
use crate::engine::operate::operations::{NewOperation, OperationPreview, Sample};
use crate::error::Error;
use crate::store::lists::dead_letters::DeadLetterFilter;
use crate::store::lists::events::EventFilter;
use crate::store::lists::pages::page_end;
use crate::store::lists::pushes::PushFilter;
use crate::store::tables::operations::{
    OperationListFilter, OperationRow, get_operation as load_operation, list_operations as load_page,
};

/// An operation in a response.
#[derive(Serialize)]
struct OperationView<'a> {
    id: i64,
    kind: &'a str,
    status: &'a str,
    filter: Cow<'a, RawJson>,
    /// Only of replays.
    config: Option<&'a str>,
    reason: Option<&'a str>,
    per_second: f64,
    matched: i64,
    matched_is_exact: bool,
    done: i64,
    skipped: i64,
    failed: i64,
    actor: Option<&'a str>,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
}

impl<'a> OperationView<'a> {
    /// Returns an operation without what `redaction` hides from its reader.
    fn of(row: &'a OperationRow, redaction: &Redaction) -> Self {
        OperationView {
            id: row.id,
            kind: &row.kind,
            status: &row.status,
            filter: shown_filter(&row.filter.0, redaction),
            config: row.config.as_deref(),
            reason: row.reason.as_deref(),
            per_second: row.per_second,
            matched: row.matched,
            matched_is_exact: row.matched_is_exact,
            done: row.done,
            skipped: row.skipped,
            failed: row.failed,
            actor: row.actor.as_deref(),
            created_at: Timestamp(row.created_at),
            started_at: timestamp(row.started_at),
            finished_at: timestamp(row.finished_at),
        }
    }
}

/// What an operation would do, in a response.
#[derive(Serialize)]
struct PreviewView<'a> {
    matched: i64,
    matched_is_exact: bool,
    /// Omitted if the caller may not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<SampleView<'a>>,
    /// The fields that the caller may not see. Omitted if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden: Option<&'static [&'static str]>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum SampleView<'a> {
    Events(Vec<EventView<'a>>),
    Deliveries(Vec<DeliveryView<'a>>),
    DeadLetters(Vec<DeadLetterView<'a>>),
}

impl<'a> PreviewView<'a> {
    /// Returns the preview without what the caller may not see. Without `read` that is the whole sample: filter by
    /// filter, it would list everything.
    fn of(preview: &'a OperationPreview, caller: &Principal, redaction: &Redaction) -> Self {
        let may_read = caller.scopes.allow(KeyScope::Read);
        PreviewView {
            matched: preview.matches.count,
            matched_is_exact: preview.matches.is_exact,
            sample: may_read.then(|| SampleView::of(&preview.sample, caller, redaction)),
            hidden: (!may_read).then_some(&["sample"]),
        }
    }
}

impl<'a> SampleView<'a> {
    fn of(sample: &'a Sample, reader: &Principal, redaction: &Redaction) -> Self {
        match sample {
            Sample::Events(rows) => {
                SampleView::Events(rows.iter().map(|row| EventView::listed(row).for_reader(reader)).collect())
            }
            Sample::Deliveries(rows) => {
                let view = |row| DeliveryView::of(row).for_reader(reader).redacted(redaction);
                SampleView::Deliveries(rows.iter().map(view).collect())
            }
            Sample::DeadLetters(rows) => {
                SampleView::DeadLetters(rows.iter().map(|row| DeadLetterView::of(row).for_reader(reader)).collect())
            }
        }
    }
}

/// `POST /events/retry`: returns FAILED and CANCELLED events to PENDING.
pub(crate) async fn retry_events(
    engine: Data<Engine>,
    scope: Scope,
    admitted: Admitted,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    start(&engine, Caller { scope, admitted }, &request, payload, OperationKind::RetryEvents).await
}

/// `POST /events/cancel`: cancels events that are not finished.
pub(crate) async fn cancel_events(
    engine: Data<Engine>,
    scope: Scope,
    admitted: Admitted,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    start(&engine, Caller { scope, admitted }, &request, payload, OperationKind::CancelEvents).await
}

/// `POST /events/reset`: returns events to PENDING whose lease has expired or whose worker is silent.
pub(crate) async fn reset_events(
    engine: Data<Engine>,
    scope: Scope,
    admitted: Admitted,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    start(&engine, Caller { scope, admitted }, &request, payload, OperationKind::ResetEvents).await
}

/// `POST /deliveries/retry`: returns FAILED and CANCELLED pushes to PENDING.
pub(crate) async fn retry_deliveries(
    engine: Data<Engine>,
    scope: Scope,
    admitted: Admitted,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    start(&engine, Caller { scope, admitted }, &request, payload, OperationKind::RetryDeliveries).await
}

/// `POST /deliveries/cancel`: cancels pushes that are not finished, or that failed and block their key.
pub(crate) async fn cancel_deliveries(
    engine: Data<Engine>,
    scope: Scope,
    admitted: Admitted,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    start(&engine, Caller { scope, admitted }, &request, payload, OperationKind::CancelDeliveries).await
}

/// `POST /dead-letters/replay`: sends dead letters again.
pub(crate) async fn replay_dead_letters(
    engine: Data<Engine>,
    scope: Scope,
    admitted: Admitted,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    start(&engine, Caller { scope, admitted }, &request, payload, OperationKind::ReplayDeadLetters).await
}

/// Who starts an operation.
struct Caller {
    scope: Scope,
    admitted: Admitted,
}

/// Starts an operation, or returns what it would do.
async fn start(
    engine: &Engine,
    caller: Caller,
    request: &HttpRequest,
    payload: Payload,
    kind: OperationKind,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(request, payload, body::MAX_EVENT_BYTES).await?;
    let (new, dry_run) = read_operation(&body, kind)?;
    if let Some(filter) = new.filter.events() {
        check_search(engine, &caller.scope, caller.admitted.principal(), filter, "filter.").await?;
    }
    if dry_run {
        let redaction = redaction_for(engine, &caller.scope, caller.admitted.principal()).await?;
        let preview = engine.preview_operation(caller.scope, new).await?;
        return Ok(HttpResponse::Ok().json(PreviewView::of(&preview, caller.admitted.principal(), &redaction)));
    }
    // The caller has sent the filter, and has passed the check of what may be searched.
    let row = engine.start_operation(caller.scope, new).await?;
    let location = (header::LOCATION, format!("/operations/{}", row.id));
    Ok(HttpResponse::Accepted().insert_header(location).json(OperationView::of(&row, &Redaction::default())))
}

fn read_operation(body: &[u8], kind: OperationKind) -> Result<(NewOperation, bool), Error> {
    let mut fields = RawFields::of_body(body)?;
    // Required: all rows are meant only for an explicit `{}`.
    let filter =
        fields.required("filter", |fields, name| fields.object(name, |filter| Some(read_filter(filter, kind))));
    let config = match kind {
        OperationKind::ReplayDeadLetters => {
            Some(fields.choice("config", ReplayConfig::parse, CONFIGS).unwrap_or_default())
        }
        _ => None,
    };
    let reason = fields.text("reason", limits::NAME_CHARS);
    let per_second = fields.number("per_second", limits::OPERATION_PER_SECOND);
    let per_second = per_second.unwrap_or(limits::DEFAULT_OPERATION_PER_SECOND);
    let dry_run = fields.boolean("dry_run").unwrap_or(false);
    let filter = fields.finish_with(filter)?;
    Ok((NewOperation { kind, filter, config, reason, per_second }, dry_run))
}

fn read_filter(fields: &mut RawFields<'_>, kind: OperationKind) -> OperationFilter {
    let ids = fields.id_list("ids", limits::OPERATION_IDS).unwrap_or_default();
    let rows = match kind {
        OperationKind::RetryEvents | OperationKind::CancelEvents => RowFilter::Events(read_event_filter(fields, kind)),
        OperationKind::ResetEvents => RowFilter::Held(HeldFilter {
            events: read_event_filter(fields, kind),
            stale_for_seconds: fields.number("stale_for_seconds", 0.0..=limits::DELAY_SECONDS as f64),
        }),
        OperationKind::RetryDeliveries | OperationKind::CancelDeliveries => RowFilter::Deliveries(PushFilter {
            event_id: fields.id("event_id"),
            subscription_id: fields.id("subscription_id"),
            status: read_status(fields, kind),
            since: fields.timestamp("since"),
            until: fields.timestamp("until"),
            failing: fields.boolean("failing"),
        }),
        OperationKind::ReplayDeadLetters => RowFilter::DeadLetters(DeadLetterFilter {
            event_id: fields.id("event_id"),
            subscription_id: fields.id("subscription_id"),
            reason: fields.choice("reason", parse_reason, &REASONS.join(", ")).map(str::to_owned),
            since: fields.timestamp("since"),
            until: fields.timestamp("until"),
            replayed: read_replayed(fields),
        }),
    };
    OperationFilter { ids, rows }
}

fn read_event_filter(fields: &mut RawFields<'_>, kind: OperationKind) -> EventFilter {
    let status = read_status(fields, kind);
    read_json_filter(fields, status)
}

/// Reads whether dead letters were replayed before, which the list may ask for. A dead letter is replayed once.
fn read_replayed(fields: &mut RawFields<'_>) -> Option<bool> {
    let replayed = fields.boolean("replayed");
    if replayed == Some(true) {
        fields.refuse("replayed", "must be false: a dead letter can be replayed once");
    }
    replayed
}

/// Reads a status that the action applies to.
fn read_status(fields: &mut RawFields<'_>, kind: OperationKind) -> Option<Status> {
    let allowed = kind.allowed_statuses();
    let names: Vec<&str> = allowed.iter().map(|status| status.as_str()).collect();
    let parse = |name: &str| Status::parse(name).filter(|status| allowed.contains(status));
    fields.choice("status", parse, &names.join(", "))
}

#[derive(Serialize)]
struct Operations<'a> {
    operations: Vec<OperationView<'a>>,
    next: Option<String>,
}

/// `GET /operations`: lists operations.
pub(crate) async fn list_operations(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let statuses = OperationStatus::ALL.map(OperationStatus::as_str).join(", ");
    let kinds = OperationKind::ALL.map(OperationKind::as_str).join(", ");
    let status = query.choice("status", OperationStatus::parse, &statuses);
    let kind = query.choice("kind", OperationKind::parse, &kinds);
    let filter = OperationListFilter { status, kind };
    let page = read_page(&mut query, DEFAULT_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_id(&engine, scope.namespace, "operations", Numbers::Ids, &filter).await?;
    let mut conn = engine.database().connection().await?;
    let rows = load_page(&mut conn, &scope, filter, page).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.id)).await?;
    let redaction = redaction_for(&engine, &scope, admitted.principal()).await?;
    let operations = rows.iter().map(|row| OperationView::of(row, &redaction)).collect();
    Ok(HttpResponse::Ok().json(Operations { operations, next }))
}

/// `GET /operations/{id}`: returns an operation with its progress.
pub(crate) async fn get_operation(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    expect_no_query(&request)?;
    let mut conn = engine.database().connection().await?;
    let row = load_operation(&mut conn, &scope, id).await?.ok_or(Error::OperationNotFound(id))?;
    drop(conn);
    let redaction = redaction_for(&engine, &scope, admitted.principal()).await?;
    Ok(HttpResponse::Ok().json(OperationView::of(&row, &redaction)))
}

/// `POST /operations/{id}/cancel`: stops an operation.
pub(crate) async fn cancel_operation(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    expect_no_input(&request, payload).await?;
    let redaction = redaction_for(&engine, &scope, admitted.principal()).await?;
    let row = engine.cancel_operation(scope, id).await?;
    Ok(HttpResponse::Ok().json(OperationView::of(&row, &redaction)))
}
