//! `/logs`: the event log of all events.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::doors::Admitted;
use super::query::{DEFAULT_PAGE, Query, read_page, read_query};
use super::view::{LogView, Timestamp, timestamp};
use crate::domain::action::Action;
use crate::domain::history::Numbers;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::lists::log_entries::{LogFilter, LogPage};

/// The name of the list in its cursors. Streams have the same.
pub(crate) const LIST: &str = "logs";

#[derive(Serialize)]
struct Logs<'a> {
    logs: Vec<LogView<'a>>,
    next: Option<String>,
    /// How far the search for entries got, if the page is not full and not the last.
    searched_to: Option<Timestamp>,
    /// The cursor to later entries, if this is the last page and the oldest entries come first.
    tail: Option<String>,
}

/// Reads the filter of the log.
pub(crate) fn read_filter(query: &mut Query) -> LogFilter {
    let actions = Action::ALL.map(Action::as_str).join(", ");
    LogFilter {
        event_id: query.id("event_id"),
        worker_id: query.worker_id("worker_id"),
        action: query.choice("action", Action::parse, &actions),
        since: query.timestamp("since"),
        until: query.timestamp("until"),
    }
}

/// `GET /logs`: lists log entries.
pub(crate) async fn list_log_entries(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let filter = read_filter(&mut query);
    let page = read_page(&mut query, DEFAULT_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_id(&engine, scope.namespace, LIST, Numbers::LogIds, &filter).await?;
    let LogPage { entries, end, searched_to, tail } = engine.list_log_entries(&scope, &filter, page).await?;
    let logs = entries.iter().map(|entry| LogView::of(entry).for_reader(admitted.principal())).collect();
    let (next, tail) = (cursors.next(end).await?, cursors.next(tail).await?);
    Ok(HttpResponse::Ok().json(Logs { logs, next, searched_to: timestamp(searched_to), tail }))
}
