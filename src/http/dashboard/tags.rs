//! The tags, what waits under each, and who serves it.

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::filter_line::word;
use super::first_steps;
use super::frame::{Section, respond};
use super::numbers::short;
use super::parts::{count, empty, events_link, pager, time};
use super::viewer::Viewer;
use crate::error::Error;
use crate::http::query::read_page;
use crate::http::stats::RateWindow;
use crate::http::tags::COUNT_CAP;
use crate::store::lists::pages::page_end;
use crate::store::lists::stats::{RecentCounts, read_recent_counts};
use crate::store::lists::tags::{TagRow, list_tags as load_page};

const TAGS_PER_PAGE: i64 = 50;

/// `GET /ui/tags`: shows tags.
pub(crate) async fn tags_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let page = read_page(&mut query, TAGS_PER_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_name(&viewer.engine, viewer.scope.namespace, "tags").await?;
    viewer.engine.record_sightings().await?;
    let mut conn = viewer.engine.database().connection().await?;
    let rows = load_page(&mut conn, &viewer.scope, &page, COUNT_CAP).await?;
    let names: Vec<&str> = rows.iter().map(|row| row.tag.as_str()).collect();
    let window = RateWindow::until(viewer.engine.time());
    let recent = read_recent_counts(&mut conn, &viewer.scope, &names, window.since).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.tag.clone())).await?;
    let rates = recent.into_iter().map(|counts| (counts.tag.clone(), Rates::of(&counts, &window))).collect();
    let content = html! {
        h1 { "Tags" }
        @if rows.is_empty() {
            div data-live="tags" {
                (empty("No events wait, and no worker has asked for any. Publish one:", Some(&first_steps::publish(&viewer))))
            }
        } @else {
            p.hint { "What can be claimed now, by tag. Rates are averages of the last five minutes." }
            button.new-rows type="button" hidden {}
            (table(&viewer, &rows, &rates))
        }
        (pager(&viewer, next.as_deref(), None))
    };
    Ok(respond(&request, &viewer, Section::Tags, "Tags", content))
}

/// Events of a tag per minute.
#[derive(Default, Clone, Copy)]
struct Rates {
    published: f64,
    completed: f64,
    failed: f64,
}

impl Rates {
    fn of(counts: &RecentCounts, window: &RateWindow) -> Self {
        Rates {
            published: window.rate(counts.published),
            completed: window.rate(counts.completed),
            failed: window.rate(counts.failed),
        }
    }
}

fn table(viewer: &Viewer, rows: &[TagRow], rates: &BTreeMap<String, Rates>) -> Markup {
    html! {
        div.table {
            table.rows data-rows {
                thead {
                    tr {
                        th { "Tag" } th { "State" } th.number { "Waiting" } th.right { "Oldest" } th.number { "Workers" }
                        th.number { "Published/min" } th.number { "Completed/min" } th.number { "Failed/min" }
                    }
                }
                tbody data-live="tags" {
                    @for row in rows { (tag_row(viewer, row, rates.get(&row.tag).copied().unwrap_or_default())) }
                }
            }
        }
    }
}

fn tag_row(viewer: &Viewer, row: &TagRow, rates: Rates) -> Markup {
    let of_tag = word("tag:", &row.tag);
    let link = |words: &str, text: &str| events_link(viewer, format!("{words} {of_tag}").trim(), text);
    html! {
        tr data-id=(row.tag) {
            td.wide { (link("", &row.tag)) }
            td.nowrap {
                @if row.waiting > 0 && row.workers == 0 { span.state.warning { "no worker" } }
                @else if row.workers > 0 { span.state.good { "served" } }
                @else { span.state.CANCELLED { "idle" } }
            }
            td.number data-label="waiting" { (link("status:PENDING", &count(row.waiting.min(COUNT_CAP), row.waiting <= COUNT_CAP))) }
            td.right.nowrap data-label=[row.oldest_at.map(|_| "oldest")] { @if let Some(at) = row.oldest_at { (time(at)) } }
            td.number data-label="workers" { a href=(viewer.link("/ui/workers")) { (count(row.workers, true)) } }
            td.number.optional { (link("since:1h", &short(rates.published))) }
            td.number.optional { (link("status:COMPLETED since:1h", &short(rates.completed))) }
            td.number.optional { (link("status:FAILED since:1h", &short(rates.failed))) }
        }
    }
}
