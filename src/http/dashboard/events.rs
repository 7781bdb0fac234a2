//! The list of events, and what can be done with those that match.

use std::borrow::Cow;

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::bulk::{BulkVerb, BulkWay, bulk_bar, select_all, select_one};
use super::filter_fields::reasons_with;
use super::filter_line::{self, LineError};
use super::first_steps;
use super::frame::{Section, respond};
use super::parts::{count, empty, event_link, exact_date, pager, state, time, with_parameter};
use super::plain;
use super::viewer::Viewer;
use crate::domain::api_key::KeyScope;
use crate::domain::history::Numbers;
use crate::domain::input::{Fields, QueryValue};
use crate::domain::operation::OperationKind;
use crate::domain::status::Status;
use crate::error::Error;
use crate::http::event_filter::{check_search, read_filter};
use crate::http::problem::code_of;
use crate::http::query::{Query, read_page};
use crate::store::lists::events::{EventFilter, EventPage, list_events as load_page, load_events};
use crate::store::tables::event_columns::EventRow;

const EVENTS_PER_PAGE: i64 = 50;

/// The number of events that a page examines at most, if no index finds them. Fewer than for the API: a person waits, and
/// goes on from there.
const SCAN_ROWS: i64 = 2_000;

/// The maximum length of a filter line, in characters.
const LINE_CHARS: usize = 2_000;

/// What can be done with many events: the label, the operation and its path, and what the filter of selected ones has
/// besides their ids. Without it, a reset would leave out those whose lease is still valid.
const BULK: &[(&str, OperationKind, &str, Option<&str>)] = &[
    ("Retry", OperationKind::RetryEvents, "/events/retry", None),
    ("Cancel", OperationKind::CancelEvents, "/events/cancel", None),
    ("Reset", OperationKind::ResetEvents, "/events/reset", Some(r#"{"stale_for_seconds":0}"#)),
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
    let named = find_named(&line, &viewer).await?;
    if let Some(event) = named.as_ref().filter(|event| event.is_sure) {
        return Ok(plain::see_other(&viewer.link(&format!("/ui/events/{}", event.row.event.id))));
    }
    let line_with_times = filter_line::with_times(&line, viewer.engine.time());
    let content = match filter_of(&line_with_times, &viewer).await? {
        Ok(filter) => {
            // The form keeps what was typed; links to further pages have the times.
            viewer.address = with_parameter(&viewer.address, "q", &line_with_times);
            let (mut page, cursors) =
                page.by_id(&viewer.engine, viewer.scope.namespace, "events", Numbers::Ids, &filter).await?;
            page.scan = page.scan.min(SCAN_ROWS);
            let mut conn = viewer.engine.database().connection().await?;
            let found = load_page(&mut conn, &viewer.scope, &filter, page, 0).await?;
            drop(conn);
            let next = cursors.next(found.end).await?;
            let next = next.as_deref();
            let listed = Listed { viewer: &viewer, line: &line, filter: &filter, found: &found, next, is_ascending };
            html! { (filter_form(&viewer, &line)) (listed.render()) }
        }
        Err(error) => html! { (filter_form(&viewer, &line)) (refusal(&viewer, &error)) },
    };
    let content = html! { @if let Some(event) = &named { (event.render(&viewer)) } (content) };
    Ok(respond(&request, &viewer, Section::Events, "Events", content))
}

/// An event whose id is the whole line.
struct Named {
    row: EventRow,
    is_sure: bool,
}

/// Returns the event that a line names, if there is one.
async fn find_named(line: &str, viewer: &Viewer) -> Result<Option<Named>, Error> {
    let Some(named) = filter_line::event_id(line) else { return Ok(None) };
    let mut conn = viewer.engine.database().connection().await?;
    let row = load_events(&mut conn, &viewer.scope, &[named.id.0]).await?.pop();
    Ok(row.map(|row| Named { row, is_sure: named.is_sure }))
}

impl Named {
    fn render(&self, viewer: &Viewer) -> Markup {
        let EventRow { event, work } = &self.row;
        html! {
            p.well {
                (state(work)) " "
                a href=(viewer.link(&format!("/ui/events/{}", event.id))) { "Event " (event.id) ": " bdi { (event.title) } }
            }
        }
    }
}

/// Returns why a line was refused, with links to what may have been meant.
fn refusal(viewer: &Viewer, error: &LineError) -> Markup {
    let first_page = with_parameter(&viewer.address, "after", "");
    html! {
        div.error role="alert" {
            p { (error.reason) }
            @if !error.instead.is_empty() {
                p {
                    "Did you mean "
                    @for (at, line) in error.instead.iter().enumerate() {
                        @if at > 0 { " or " }
                        a href=(with_parameter(&first_page, "q", line)) { bdi { (line) } }
                    }
                    "?"
                }
            }
        }
    }
}

fn parse_ascending(text: &str) -> Option<bool> {
    match text {
        "asc" => Some(true),
        "desc" => Some(false),
        _ => None,
    }
}

/// Returns the filter that a line stands for. The inner error is for the person who wrote it.
async fn filter_of(line: &str, viewer: &Viewer) -> Result<Result<EventFilter, LineError>, Error> {
    let filter = match read_line(line, viewer) {
        Ok(filter) => filter,
        Err(reason) => return Ok(Err(reason)),
    };
    match check_search(&viewer.engine, &viewer.scope, &viewer.principal, &filter, "").await {
        Ok(()) => Ok(Ok(filter)),
        Err(Error::ScopeMissing(scope)) => Ok(Err(LineError::from(format!(
            "Words search errors, and payload.… searches payloads. That needs a key with the scope {scope}."
        )))),
        Err(error) if code_of(&error).status().is_client_error() => Ok(Err(reasons_of_line(&error).into())),
        Err(error) => Err(error),
    }
}

fn read_line(line: &str, viewer: &Viewer) -> Result<EventFilter, LineError> {
    if let Some(named) = filter_line::event_id(line).filter(|named| named.is_sure) {
        return Err(format!("There is no event {}.", named.id).into());
    }
    let parameters = filter_line::parameters(line, viewer.engine.time())?;
    let pairs = parameters.into_iter().map(|(name, value)| (Cow::from(name), QueryValue(value)));
    let mut query: Query = Fields::new(pairs);
    let filter = read_filter(&mut query);
    query.finish().map_err(|error| reasons_of_line(&Error::from(error)))?;
    Ok(filter)
}

/// Returns what is wrong with a filter, in the words of the line.
fn reasons_of_line(error: &Error) -> String {
    reasons_with(error, filter_line::written)
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

/// What a list is made of.
struct Listed<'a> {
    viewer: &'a Viewer,
    line: &'a str,
    filter: &'a EventFilter,
    found: &'a EventPage,
    next: Option<&'a str>,
    is_ascending: bool,
}

impl Listed<'_> {
    fn render(&self) -> Markup {
        let Listed { viewer, found, next, .. } = *self;
        html! {
            div data-list data-any-state=[self.in_any_state()] {
                (self.bar())
                button.new-rows type="button" hidden {}
                @if found.events.is_empty() && next.is_none() {
                    div data-live="events" {
                        @if *self.filter == EventFilter::default() { (no_events_yet(viewer)) } @else { (empty("No event matches.", None)) }
                    }
                } @else if let Some(at) = found.searched_to.filter(|_| found.events.is_empty()) {
                    div.empty {
                        p {
                            "No match yet; searched " @if self.is_ascending { "up to " } @else { "back to " } (exact_date(at))
                            ". This filter has no index, so events are searched step by step: go on, or add since: or tag: to narrow it."
                        }
                    }
                } @else {
                    (self.table())
                }
                (pager(viewer, next, found.searched_to))
            }
        }
    }

    /// Returns the address of the list without a state, if the filter has one: where events are found that have just left it.
    fn in_any_state(&self) -> Option<String> {
        self.filter.status?;
        let line = filter_line::without(self.line, "status");
        Some(with_parameter(&with_parameter(&self.viewer.address, "after", ""), "q", &line))
    }

    fn bar(&self) -> Markup {
        let Listed { viewer, filter, is_ascending, .. } = *self;
        let total = matches(self.found);
        let live_total = self.is_live().then_some("total");
        let first_page = with_parameter(&viewer.address, "after", "");
        let reversed = with_parameter(&first_page, "order", if is_ascending { "desc" } else { "asc" });
        let verbs = verbs(filter.status);
        let number = html! { @if let Some(total) = &total { span data-live=[live_total] { (total) } " " } };
        html! {
            div.pager {
                @if viewer.may_operate() && !verbs.is_empty() {
                    (bulk_bar(viewer, "events", filter, &verbs, &number))
                } @else {
                    span data-live=[live_total] { @if let Some(total) = &total { (total) " match" } @else { "no match yet" } }
                }
                span.muted { @if is_ascending { "oldest first" } @else { "newest first" } }
                a href=(reversed) { @if is_ascending { "show the newest first" } @else { "show the oldest first" } }
            }
        }
    }

    /// Returns whether the rows are kept up to date while the page is open. A search is not repeated every few seconds.
    fn is_live(&self) -> bool {
        self.found.searched_to.is_none() && !self.filter.is_about_contents()
    }

    fn table(&self) -> Markup {
        html! {
            div.table {
                table.rows data-rows {
                    thead {
                        tr {
                            (select_all(self.viewer))
                            th { "State" } th { "Id" } th { "Title" } th { "Tags" } th.number { "Attempts" } th { "Last error" } th.right { "Changed" }
                        }
                    }
                    tbody data-live=[self.is_live().then_some("events")] { @for row in &self.found.events { (self.event_row(row)) } }
                }
            }
        }
    }

    fn event_row(&self, row: &EventRow) -> Markup {
        let (viewer, EventRow { event, work }) = (self.viewer, row);
        html! {
            tr data-id=(event.id) {
                (select_one(viewer, "event", event.id.0))
                td.nowrap { (state(work)) }
                td { (event_link(viewer, event.id)) }
                td.wide.title dir="auto" { a href=(viewer.link(&format!("/ui/events/{}", event.id))) { (event.title) } }
                td.tags { @for tag in &event.tags.0 { (self.tag_link(tag)) " " } }
                td.number.nowrap.optional { @if !event.tags.0.is_empty() { (work.retry_count) "/" (event.max_retries) } }
                td.wide.last-error { @if viewer.may_reveal() { (first_line(work.last_error.as_deref())) } }
                td.right.nowrap { (time(work.updated_at)) }
            }
        }
    }

    /// Returns the link to those events of this list that have a tag.
    fn tag_link(&self, tag: &str) -> Markup {
        // Further tags would widen the list, which has events with any of them.
        let others = filter_line::without(self.line, "tags");
        let line = filter_line::with_word(&others, &filter_line::word("tag:", tag));
        let first_page = with_parameter(&self.viewer.address, "after", "");
        html! { a href=(with_parameter(&first_page, "q", &line)) { (tag) } }
    }
}

/// Returns what can be done with events in a state.
fn verbs(status: Option<Status>) -> Vec<BulkVerb<'static>> {
    let fits = |kind: OperationKind| status.is_none_or(|status| kind.allowed_statuses().contains(&status));
    let verb =
        |(label, kind, path, chosen): &(&'static str, OperationKind, &'static str, Option<&'static str>)| BulkVerb {
            label,
            way: BulkWay::Operation { path, chosen: *chosen },
            is_danger: *kind != OperationKind::RetryEvents,
        };
    BULK.iter().filter(|(_, kind, ..)| fits(*kind)).map(verb).collect()
}

fn no_events_yet(viewer: &Viewer) -> Markup {
    empty("No events yet. Publish one:", Some(&first_steps::publish(viewer)))
}

const ERROR_CHARS: usize = 200;

fn first_line(error: Option<&str>) -> String {
    error.and_then(|error| error.lines().next()).unwrap_or_default().chars().take(ERROR_CHARS).collect()
}
