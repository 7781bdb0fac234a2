//! `/workers`: the workers seen, the events that they hold, and whether they are stale or silent.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::operate::STALE_SECONDS;
use super::query::{DEFAULT_PAGE, read_page, read_query};
use super::view::Timestamp;
use crate::domain::ids::EventId;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::lists::pages::page_end;
use crate::store::tables::workers::{WorkerRow, list_workers as load_page};

/// A worker that has not called for this long is silent: it has ended, or cannot reach the server. The tags that it
/// asked for count as unserved after the same time.
const SILENT_SECONDS: i64 = 90;

/// Returns whether a worker has not called for long. One that waits for events calls again when its wait ends.
pub(crate) fn is_silent(worker: &WorkerRow, now: DateTime<Utc>) -> bool {
    now - worker.last_seen_at >= TimeDelta::seconds(SILENT_SECONDS)
}

#[derive(Serialize)]
struct Workers {
    workers: Vec<WorkerView>,
    next: Option<String>,
}

#[derive(Serialize)]
struct WorkerView {
    worker_id: String,
    tags: Vec<String>,
    first_seen_at: Timestamp,
    last_seen_at: Timestamp,
    holding: i64,
    event_ids: Vec<EventId>,
    stale: bool,
    stale_events: i64,
    silent: bool,
}

/// `GET /workers`: lists workers.
pub(crate) async fn list_workers(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let page = read_page(&mut query, DEFAULT_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_name(&engine, scope.namespace, "workers").await?;
    // The response includes sightings that this server has not stored yet.
    engine.record_sightings().await?;
    let mut conn = engine.database().connection().await?;
    let rows = load_page(&mut conn, &scope, STALE_SECONDS, &page).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.worker_id.clone())).await?;
    let now = engine.time();
    let workers = rows
        .into_iter()
        .map(|row| WorkerView {
            silent: is_silent(&row, now),
            worker_id: row.worker_id,
            tags: row.tags,
            first_seen_at: Timestamp(row.first_seen_at),
            last_seen_at: Timestamp(row.last_seen_at),
            holding: row.holding,
            event_ids: row.event_ids,
            stale: row.stale > 0,
            stale_events: row.stale,
        })
        .collect();
    Ok(HttpResponse::Ok().json(Workers { workers, next }))
}
