//! The workers that were seen, and what they hold.

use actix_web::{HttpRequest, HttpResponse};
use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::filter_line::word;
use super::first_steps;
use super::frame::{Section, respond};
use super::parts::{count, empty, event_link, events_link, pager, time};
use super::viewer::Viewer;
use crate::error::Error;
use crate::http::operate::STALE_SECONDS;
use crate::http::query::read_page;
use crate::http::workers::is_silent;
use crate::store::lists::pages::page_end;
use crate::store::tables::workers::{WorkerRow, list_workers as load_page};

const WORKERS_PER_PAGE: i64 = 50;

/// The maximum number of held events that are shown of a worker, and of its tags.
const HELD_EVENTS: usize = 5;
const SHOWN_TAGS: usize = 10;

/// `GET /ui/workers`: shows workers.
pub(crate) async fn workers_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let page = read_page(&mut query, WORKERS_PER_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_name(&viewer.engine, viewer.scope.namespace, "workers").await?;
    viewer.engine.record_sightings().await?;
    let mut conn = viewer.engine.database().connection().await?;
    let rows = load_page(&mut conn, &viewer.scope, STALE_SECONDS, &page).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.worker_id.clone())).await?;
    let content = html! {
        h1 { "Workers" }
        @if rows.is_empty() {
            div data-live="workers" {
                (empty("No worker has asked for events yet. Be one:", Some(&first_steps::claim(&viewer))))
            }
        } @else {
            p.hint { "Who has called, and the events that each holds. Stale: an event is held without a sign of life for 30 s. Silent: no call for 90 s." }
            button.new-rows type="button" hidden {}
            (table(&viewer, &rows))
        }
        (pager(&viewer, next.as_deref(), None))
    };
    Ok(respond(&request, &viewer, Section::Workers, "Workers", content))
}

fn table(viewer: &Viewer, rows: &[WorkerRow]) -> Markup {
    let now = viewer.engine.time();
    html! {
        div.table {
            table.rows data-rows {
                thead { tr { th { "Worker" } th { "State" } th { "Tags" } th.number { "Holds" } th.roomier { "Events" } th.right.roomy { "First seen" } th.right { "Last seen" } } }
                tbody data-live="workers" { @for row in rows { (worker_row(viewer, row, now)) } }
            }
        }
    }
}

fn worker_row(viewer: &Viewer, row: &WorkerRow, now: DateTime<Utc>) -> Markup {
    let held = word("worker:", &row.worker_id);
    html! {
        tr data-id=(row.worker_id) {
            td.mono.name { (events_link(viewer, &held, &row.worker_id)) }
            td.nowrap { (state(row, now)) }
            td.wide.optional {
                @for tag in row.tags.iter().take(SHOWN_TAGS) { (events_link(viewer, &word("tag:", tag), tag)) " " }
                @if row.tags.len() > SHOWN_TAGS { "and " (row.tags.len() - SHOWN_TAGS) " more" }
            }
            td.number data-label="holds" { (events_link(viewer, &held, &count(row.holding, true))) }
            td.nowrap.optional.roomier {
                @for id in row.event_ids.iter().take(HELD_EVENTS) { (event_link(viewer, *id)) " " }
                @if row.holding > HELD_EVENTS as i64 { "…" }
            }
            td.right.nowrap.optional.roomy { (time(row.first_seen_at)) }
            td.right.nowrap data-label="seen" { (time(row.last_seen_at)) }
        }
    }
}

fn state(row: &WorkerRow, now: DateTime<Utc>) -> Markup {
    html! {
        @if row.stale > 0 { span.state.warning { "stale, holds " (row.stale) } }
        @else if is_silent(row, now) { span.state.CANCELLED { "silent" } }
        @else { span.state.good { "seen" } }
    }
}
