//! The list of events, and what can be done with those that match.

use std::borrow::Cow;

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::filter_line;
use super::first_steps;
use super::frame::{Section, respond};
use super::parts::{count, empty, event_link, events_link, exact_date, pager, state, time, with_parameter};
use super::viewer::Viewer;
use crate::domain::api_key::KeyScope;
use crate::domain::history::Numbers;
use crate::domain::input::{Fields, QueryValue};
use crate::error::Error;
use crate::http::event_filter::{check_search, read_filter};
use crate::http::problem::code_of;
use crate::http::query::{Query, read_page};
use crate::store::lists::events::{EventFilter, EventPage, list_events as load_page};
use crate::store::tables::event_columns::EventRow;

const EVENTS_PER_PAGE: i64 = 50;

/// The number of events that a page examines at most, if no index finds them. Fewer than for the API: a person waits, and
/// goes on from there.
const SCAN_ROWS: i64 = 2_000;

/// The maximum length of a filter line, in characters.
const LINE_CHARS: usize = 2_000;

/// What can be done with many events: the label, the path for all that match, and the path for one.
const BULK: &[(&str, &str, &str)] = &[
    ("Retry", "/events/retry", "/events/{id}/retry"),
    ("Cancel", "/events/cancel", "/events/{id}/cancel"),
    ("Reset", "/events/reset", "/events/{id}/reset"),
];

/// `GET /ui/events`: shows events.
pub(crate) async fn events_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let line = query.text("q", LINE_CHARS).unwrap_or_default();
    // The newest first, unless the address says otherwise.
    let is_ascending = query.choice("order", parse_ascending, "asc, desc").unwrap_or(false);
    let mut page = read_page(&mut query, EVENTS_PER_PAGE);
    query.finish()?;
    page.descending = !is_ascending;
    let content = match filter_of(&line, &viewer).await? {
        Ok(filter) => {
            let (mut page, cursors) = page.by_id(&viewer.engine, "events", Numbers::Ids, &filter).await?;
            page.scan = page.scan.min(SCAN_ROWS);
            let mut conn = viewer.engine.database().connection().await?;
            let found = load_page(&mut conn, &viewer.scope, &filter, page, 0).await?;
            drop(conn);
            let next = cursors.next(found.end).await?;
            list(&viewer, &line, &filter, &found, next.as_deref(), is_ascending)
        }
        Err(reason) => html! { (filter_form(&viewer, &line)) p.error role="alert" { (reason) } },
    };
    Ok(respond(&request, &viewer, Section::Events, "Events", content))
}

fn parse_ascending(text: &str) -> Option<bool> {
    match text {
        "asc" => Some(true),
        "desc" => Some(false),
        _ => None,
    }
}

/// Returns the filter that a line stands for. The inner error is for the person who wrote it.
async fn filter_of(line: &str, viewer: &Viewer) -> Result<Result<EventFilter, String>, Error> {
    let filter = match read_line(line, viewer) {
        Ok(filter) => filter,
        Err(reason) => return Ok(Err(reason)),
    };
    match check_search(&viewer.engine, &viewer.scope, &viewer.principal, &filter, "").await {
        Ok(()) => Ok(Ok(filter)),
        Err(Error::ScopeMissing(scope)) => Ok(Err(format!(
            "Words search errors, and payload.… searches payloads. That needs a key with the scope {scope}."
        ))),
        Err(error) if code_of(&error).status().is_client_error() => Ok(Err(reasons(&error))),
        Err(error) => Err(error),
    }
}

fn read_line(line: &str, viewer: &Viewer) -> Result<EventFilter, String> {
    let parameters = filter_line::parameters(line, viewer.engine.time())?;
    let pairs = parameters.into_iter().map(|(name, value)| (Cow::from(name), QueryValue(value)));
    let mut query: Query = Fields::new(pairs);
    let filter = read_filter(&mut query);
    query.finish().map_err(|error| reasons(&Error::from(error)))?;
    Ok(filter)
}

/// Returns what is wrong with a filter, field by field.
pub(super) fn reasons(error: &Error) -> String {
    match error {
        Error::Invalid(errors) => {
            let reasons: Vec<String> =
                errors.iter().map(|invalid| format!("{} {}", invalid.field, invalid.reason)).collect();
            reasons.join("; ")
        }
        other => other.to_string(),
    }
}

fn filter_form(viewer: &Viewer, line: &str) -> Markup {
    html! {
        div.head {
            h1 { "Events" }
            @if viewer.may(KeyScope::Publish) {
                div.actions { a.button href=(viewer.link("/ui/publish")) { "Publish an event" } }
            }
        }
        form action="/ui/events" method="get" {
            @if let Some(namespace) = &viewer.namespace { input type="hidden" name="namespace" value=(namespace); }
            label for="filter" { "Filter" }
            input #filter type="search" name="q" value=(line) spellcheck="false" autocomplete="off"
                aria-describedby="filter-hint" placeholder="status:FAILED tag:billing since:24h payload.order.id=17";
            p.hint #filter-hint {
                "status: tag: type: worker: correlation: key: since: until: label.team=core"
                @if viewer.may_reveal() { " payload.order.id=17, or words of a title or an error" }
                "; - excludes, as in -type:test"
            }
        }
        (chips(viewer, line))
    }
}

/// Returns the words of a filter, each a link to the page without it.
fn chips(viewer: &Viewer, line: &str) -> Markup {
    let first_page = with_parameter(&viewer.address, "after", "");
    let words = filter_line::words_and_rests(line);
    html! {
        @if !words.is_empty() {
            ul.chips aria-label="Words of the filter" {
                @for (word, rest) in words {
                    li {
                        a.chip href=(with_parameter(&first_page, "q", &rest)) {
                            span.hidden-text { "Remove " } bdi { (word) } span aria-hidden="true" { " ×" }
                        }
                    }
                }
            }
        }
    }
}

/// Returns how many events match, as far as they were counted.
fn matches(found: &EventPage) -> Option<String> {
    let is_unknown = found.total == 0 && !found.total_is_exact;
    (!is_unknown).then(|| count(found.total, found.total_is_exact))
}

fn list(
    viewer: &Viewer,
    line: &str,
    filter: &EventFilter,
    found: &EventPage,
    next: Option<&str>,
    is_ascending: bool,
) -> Markup {
    let json = serde_json::to_string(filter).unwrap_or_default();
    let total = matches(found);
    let reversed = with_parameter(
        &with_parameter(&viewer.address, "after", ""),
        "order",
        if is_ascending { "desc" } else { "asc" },
    );
    let live_total = is_live(filter, found).then_some("total");
    html! {
        (filter_form(viewer, line))
        div.pager data-filter=(json) {
            @if viewer.may_operate() {
                span.actions {
                    @for (label, path, one) in BULK {
                        button type="button" data-bulk data-verb=(label) data-path=(path) data-one=(one) { (label) }
                    }
                    label.nowrap { input type="checkbox" data-all-match; " all " @if let Some(total) = &total { span data-live=[live_total] { (total) } " " } "that match" }
                }
            } @else {
                span data-live=[live_total] { @if let Some(total) = &total { (total) " match" } @else { "no match yet" } }
            }
            span.muted { @if is_ascending { "oldest first" } @else { "newest first" } }
            a href=(reversed) { @if is_ascending { "show the newest first" } @else { "show the oldest first" } }
        }
        button.new-rows type="button" hidden {}
        @if found.events.is_empty() && next.is_none() {
            div data-live="events" {
                @if *filter == EventFilter::default() { (no_events_yet(viewer)) } @else { (empty("No event matches.", None)) }
            }
        } @else if let Some(at) = found.searched_to.filter(|_| found.events.is_empty()) {
            div.empty {
                p {
                    "No match yet; searched " @if is_ascending { "up to " } @else { "back to " } (exact_date(at))
                    ". This filter has no index, so events are searched step by step: go on, or add since: or tag: to narrow it."
                }
            }
        } @else {
            (table(viewer, &found.events, is_live(filter, found)))
        }
        (pager(viewer, next, found.searched_to))
    }
}

fn no_events_yet(viewer: &Viewer) -> Markup {
    empty("No events yet. Publish one:", Some(&first_steps::publish(viewer)))
}

/// Returns whether the rows are kept up to date while the page is open. A search is not repeated every few seconds.
fn is_live(filter: &EventFilter, found: &EventPage) -> bool {
    found.searched_to.is_none() && !filter.is_about_contents()
}

fn table(viewer: &Viewer, events: &[EventRow], is_live: bool) -> Markup {
    html! {
        div.table {
            table.rows data-rows {
                thead {
                    tr {
                        @if viewer.may_operate() { th { input type="checkbox" data-select-all aria-label="Select all on this page"; } }
                        th { "State" } th { "Id" } th { "Title" } th { "Tags" } th.number { "Attempts" } th { "Last error" } th.right { "Changed" }
                    }
                }
                tbody data-live=[is_live.then_some("events")] { @for row in events { (event_row(viewer, row)) } }
            }
        }
    }
}

fn event_row(viewer: &Viewer, row: &EventRow) -> Markup {
    let EventRow { event, work } = row;
    html! {
        tr data-id=(event.id) {
            @if viewer.may_operate() {
                td { input type="checkbox" data-select value=(event.id) aria-label=(format!("Select event {}", event.id)); }
            }
            td.nowrap { (state(work)) }
            td { (event_link(viewer, event.id)) }
            td.wide dir="auto" { (event.title) }
            td.tags { @for tag in &event.tags.0 { (events_link(viewer, &filter_line::word("tag:", tag), tag)) " " } }
            td.number.nowrap.optional { @if !event.tags.0.is_empty() { (work.retry_count) "/" (event.max_retries) } }
            td.wide.optional { @if viewer.may_reveal() { (first_line(work.last_error.as_deref())) } }
            td.right.nowrap { (time(work.updated_at)) }
        }
    }
}

const ERROR_CHARS: usize = 200;

fn first_line(error: Option<&str>) -> String {
    error.and_then(|error| error.lines().next()).unwrap_or_default().chars().take(ERROR_CHARS).collect()
}
