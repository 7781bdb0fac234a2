//! `/events`: publishes and reads events.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::body::{self, path_id, read_json_without_query};
use super::cursor::{next_cursor, position_of};
use super::deliveries::DeliveryView;
use super::new_event::{Publisher, read_event};
use super::query::{Query, read_cursor, read_query};
use super::sliced_body::respond_json;
use super::view::{EventView, LogView, published, size_of};
use crate::domain::history::Numbers;
use crate::domain::input::{Fields, RawFields, read_items};
use crate::domain::limits;
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::lists::events::{EventFilter, Page, list_events as load_page};
use crate::store::lists::pushes::pushes_of_event;
use crate::store::tables::event_log::logs_of_event;
use crate::store::tables::events::{get_cancel_reason as load_cancel_reason, get_event as load_event};

/// The maximum number of log entries in the view of an event. `/logs` has all.
const LOGS_PER_EVENT: i64 = 1_000;

/// The maximum number of deliveries in the view of an event. `/deliveries` has all.
const DELIVERIES_PER_EVENT: i64 = 100;

/// The maximum `offset`. Later pages are reached by cursor.
const MAX_OFFSET: i64 = 10_000;

/// The values of `status` in a request, for error texts.
pub(crate) const STATES: &str = "PENDING, PROCESSING, COMPLETED, FAILED, CANCELLED";

/// `POST /events`: publishes an event.
pub(crate) async fn publish_event(
    engine: Data<Engine>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, body::MAX_EVENT_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let event = read_event(&mut fields, &Publisher::of(&request));
    let event = fields.finish_with(event)?;
    // The event owns copies of what it needs. The body is freed before the publish, which may wait.
    let share = body.into_share();
    let events = Arc::new(vec![event]);
    let stored = engine.publish_events(events.clone()).await?;
    let Some(row) = published(events, stored).pop() else {
        return Err(Error::Internal("publishing an event returned no row".into()));
    };
    let mut response = respond_json(StatusCode::CREATED, size_of([&row.0]), &EventView::published(&row), Some(share))?;
    let location = HeaderValue::from_str(&format!("/events/{}", row.0.event.id));
    // Cannot fail: the path is ASCII.
    response.headers_mut().insert(header::LOCATION, location.map_err(|error| Error::Internal(error.to_string()))?);
    Ok(response)
}

#[derive(Serialize)]
struct Events<'a> {
    events: Vec<EventView<'a>>,
}

/// `POST /events/batch`: publishes all events of a batch, or none.
pub(crate) async fn publish_batch(
    engine: Data<Engine>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, body::MAX_BATCH_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let items = fields.required("events", Fields::items);
    let items = fields.finish_with(items)?;
    let publisher = Publisher::of(&request);
    let events = read_items("events", &items, |fields| read_event(fields, &publisher))?;
    let share = body.into_share();
    let events = Arc::new(events);
    let rows = published(events.clone(), engine.publish_events(events).await?);
    let size = size_of(rows.iter().map(|(row, _)| row));
    let events = Events { events: rows.iter().map(EventView::published).collect() };
    respond_json(StatusCode::CREATED, size, &events, Some(share))
}

/// `GET /events/{id}`: returns an event, with its logs and deliveries if requested.
pub(crate) async fn get_event(engine: Data<Engine>, scope: Scope, request: HttpRequest) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let mut query = read_query(&request)?;
    let include_logs = query.boolean("include_logs").unwrap_or(false);
    let include_deliveries = query.boolean("include_deliveries").unwrap_or(false);
    query.finish()?;
    let mut conn = engine.database().connection().await?;
    let row = load_event(&mut conn, &scope, id).await?.ok_or(Error::EventNotFound(id))?;
    let logs = if include_logs { logs_of_event(&mut conn, id, LOGS_PER_EVENT).await? } else { Vec::new() };
    let pushes = match include_deliveries {
        true => pushes_of_event(&mut conn, &scope, id, DELIVERIES_PER_EVENT).await?,
        false => Vec::new(),
    };
    let cancel_reason = match row.work.cancel_requested || row.work.status.0 == Status::Cancelled {
        true => load_cancel_reason(&mut conn, id).await?,
        false => None,
    };
    let mut view = EventView::whole(&row);
    view.cancel_reason = cancel_reason.as_deref();
    if include_logs {
        view.logs = Some(logs.iter().map(LogView::of).collect());
    }
    if include_deliveries {
        view.deliveries = Some(pushes.iter().map(DeliveryView::of).collect());
    }
    respond_json(StatusCode::OK, size_of([&row]), &view, None)
}

#[derive(Serialize)]
struct EventList<'a> {
    events: Vec<EventView<'a>>,
    total: i64,
    total_is_exact: bool,
    limit: i64,
    offset: i64,
    next: Option<String>,
}

/// `GET /events`: lists events without their payloads.
pub(crate) async fn list_events(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let filter = read_filter(&mut query);
    let after = read_cursor(&mut query);
    let mut page = Page {
        descending: query.choice("order", parse_order, "asc, desc").unwrap_or(false),
        after: None,
        offset: query.integer("offset", 0..=MAX_OFFSET).unwrap_or(0),
        limit: query.integer("limit", limits::PAGE).unwrap_or(20),
        scan: engine.settings().list_scan_rows,
    };
    query.finish()?;
    page.after = position_of(after, &engine, Numbers::Ids).await?;
    let mut conn = engine.database().connection().await?;
    let page_rows = load_page(&mut conn, &scope, &filter, page).await?;
    Ok(HttpResponse::Ok().json(EventList {
        events: page_rows.events.iter().map(EventView::without_payload).collect(),
        total: page_rows.total,
        total_is_exact: page_rows.total_is_exact,
        limit: page.limit,
        offset: page.offset,
        next: next_cursor(page_rows.next, &engine, Numbers::Ids).await?,
    }))
}

/// Reads the filters of a list.
fn read_filter(query: &mut Query) -> EventFilter {
    EventFilter {
        status: query.choice("status", Status::parse, STATES),
        tags: query.some_tags("tags").unwrap_or_default().as_slice().to_vec(),
        event_type: query.text("event_type", limits::NAME_CHARS),
        worker_id: query.worker_id("worker_id"),
        correlation_id: query.text("correlation_id", limits::NAME_CHARS),
        since: query.timestamp("since"),
        until: query.timestamp("until"),
    }
}

/// Returns whether an order is descending.
pub(crate) fn parse_order(text: &str) -> Option<bool> {
    match text {
        "asc" => Some(false),
        "desc" => Some(true),
        _ => None,
    }
}
