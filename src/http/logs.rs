//! `/logs`: the event log of all events.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::cursor::{next_cursor, position_of};
use super::query::{read_page, read_query};
use super::view::LogView;
use crate::domain::action::Action;
use crate::domain::history::Numbers;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::tables::event_log::{LogFilter, list_logs as load_page};

#[derive(Serialize)]
struct Logs<'a> {
    logs: Vec<LogView<'a>>,
    next: Option<String>,
}

/// `GET /logs`: lists log entries.
pub(crate) async fn list_logs(engine: Data<Engine>, scope: Scope, request: HttpRequest) -> Result<HttpResponse, Error> {
    let actions = Action::ALL.map(Action::as_str).join(", ");
    let mut query = read_query(&request)?;
    let filter = LogFilter {
        event_id: query.id("event_id"),
        worker_id: query.worker_id("worker_id"),
        action: query.choice("action", Action::parse, &actions),
        since: query.timestamp("since"),
    };
    let (after, limit) = read_page(&mut query);
    query.finish()?;
    let after = position_of(after, &engine, Numbers::LogIds).await?.unwrap_or(0);
    let mut conn = engine.database().connection().await?;
    let scan = engine.settings().list_scan_rows;
    let (entries, next) = load_page(&mut conn, &scope, &filter, after, limit, scan).await?;
    let next = next_cursor(next, &engine, Numbers::LogIds).await?;
    Ok(HttpResponse::Ok().json(Logs { logs: entries.iter().map(LogView::of).collect(), next }))
}
