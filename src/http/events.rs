//! `/events`: reads events.

use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::body::path_id;
use super::deliveries::DeliveryView;
use super::doors::Admitted;
use super::event_filter::{check_search, read_filter};
use super::query::{read_page, read_query};
use super::redaction::redaction_for;
use super::refused_settlements::RefusedSettlementView;
use super::sliced_body::respond_json;
use super::view::{EventView, LogView, Timestamp, size_of, timestamp};
use crate::domain::history::Numbers;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::lists::events::{EventPage, list_events as load_page};
use crate::store::lists::pushes::pushes_of_event;
use crate::store::tables::event_log::logs_of_event;
use crate::store::tables::events::get_event_details as load_event;
use crate::store::tables::refused_settlements::refused_settlements_of_event;

/// The maximum number of log entries in the view of an event. `/logs` has all.
const LOGS_PER_EVENT: i64 = 1_000;

/// The maximum number of deliveries in the view of an event. `/deliveries` has all.
const DELIVERIES_PER_EVENT: i64 = 100;

/// The number of events of a page, if the request does not say.
const DEFAULT_EVENTS_PAGE: i64 = 20;

/// The maximum `offset`. Later pages are reached by cursor.
const MAX_OFFSET: i64 = 10_000;

/// The values of `status` in a request, for error texts.
pub(crate) const STATES: &str = "PENDING, PROCESSING, COMPLETED, FAILED, CANCELLED";

/// `GET /events/{id}`: returns an event, with its logs and deliveries if requested.
pub(crate) async fn get_event(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let reader = admitted.principal();
    let id = path_id(&request).await?;
    let mut query = read_query(&request)?;
    let include_logs = query.boolean("include_logs").unwrap_or(false);
    let include_deliveries = query.boolean("include_deliveries").unwrap_or(false);
    query.finish()?;
    let redaction = redaction_for(&engine, &scope, reader).await?;
    let mut conn = engine.database().connection().await?;
    let event = load_event(&mut conn, &scope, id).await?.ok_or(Error::EventNotFound(id))?;
    let (logs, refused) = match include_logs {
        true => {
            let logs = logs_of_event(&mut conn, &scope, id, LOGS_PER_EVENT).await?;
            (logs, refused_settlements_of_event(&mut conn, &scope, id).await?)
        }
        false => (Vec::new(), Vec::new()),
    };
    let pushes = match include_deliveries {
        true => pushes_of_event(&mut conn, &scope, id, DELIVERIES_PER_EVENT).await?,
        false => Vec::new(),
    };
    let mut view = EventView::detailed(&event, &redaction).for_reader(reader);
    if include_logs {
        view.refused_settlements = Some(refused.iter().map(RefusedSettlementView::of).collect());
        view.logs = Some(logs.iter().map(|entry| LogView::of(entry).for_reader(reader)).collect());
    }
    if include_deliveries {
        let pushes = pushes.iter().map(|row| DeliveryView::of(row).for_reader(reader).redacted(&redaction));
        view.deliveries = Some(pushes.collect());
    }
    respond_json(StatusCode::OK, size_of([&event.row]), &view, None)
}

#[derive(Serialize)]
struct EventList<'a> {
    events: Vec<EventView<'a>>,
    total: i64,
    total_is_exact: bool,
    limit: i64,
    offset: i64,
    next: Option<String>,
    /// How far the search for events got, if the page is not full and not the last.
    searched_to: Option<Timestamp>,
}

/// `GET /events`: lists events without payload, result and progress.
pub(crate) async fn list_events(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let filter = read_filter(&mut query);
    let page = read_page(&mut query, DEFAULT_EVENTS_PAGE);
    let offset = query.integer("offset", 0..=MAX_OFFSET);
    if page.after.is_some() && offset.is_some() {
        query.refuse("offset", "cannot be combined with after");
    }
    query.finish()?;
    check_search(&engine, &scope, admitted.principal(), &filter, "").await?;
    let offset = offset.unwrap_or(0);
    let (page, cursors) = page.by_id(&engine, scope.namespace, "events", Numbers::Ids, &filter).await?;
    let mut conn = engine.database().connection().await?;
    let EventPage { events, end, searched_to, total, total_is_exact } =
        load_page(&mut conn, &scope, &filter, page, offset).await?;
    drop(conn);
    Ok(HttpResponse::Ok().json(EventList {
        events: events.iter().map(|row| EventView::listed(row).for_reader(admitted.principal())).collect(),
        total,
        total_is_exact,
        limit: page.limit,
        offset,
        next: cursors.next(end).await?,
        searched_to: timestamp(searched_to),
    }))
}
