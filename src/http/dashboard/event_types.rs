//! The event types: those that are declared, and those that events have.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::event_type::declaration_fields;
use super::filter_line::word;
use super::form_fields::{Field, Kind, buttons};
use super::frame::{Section, respond};
use super::parts::{count, empty, encode_segment, events_link, pager, time};
use super::viewer::Viewer;
use crate::error::Error;
use crate::http::event_types::COUNT_CAP;
use crate::http::query::read_page;
use crate::store::lists::event_types::{ListedEventType, list_event_types as load_page};
use crate::store::lists::pages::page_end;

const TYPES_PER_PAGE: i64 = 50;

/// `GET /ui/event-types`: shows event types.
pub(crate) async fn event_types_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let page = read_page(&mut query, TYPES_PER_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_name(&viewer.engine, viewer.scope.namespace, "event_types").await?;
    let mut conn = viewer.engine.database().connection().await?;
    let rows = load_page(&mut conn, &viewer.scope, &page, COUNT_CAP).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.name.clone())).await?;
    let content = html! {
        h1 { "Event types" }
        p.muted { "A declared type may have a JSON Schema. An event whose payload does not fit is refused when it is published." }
        button.new-rows type="button" hidden {}
        @if rows.is_empty() { div data-live="event-types" { (no_types(&viewer)) } } @else { (table(&viewer, &rows)) }
        (pager(&viewer, next.as_deref(), None))
        @if viewer.may_operate() { (new_type()) }
    };
    Ok(respond(&request, &viewer, Section::EventTypes, "Event types", content))
}

fn no_types(viewer: &Viewer) -> Markup {
    let declaration = r#"{"schema": {"type": "object", "required": ["order"]}, "examples": [{"order": 17}]}"#;
    empty(
        "No event has a type yet, and none is declared. Declare one:",
        Some(&viewer.curl("PUT", "/event-types/order.charged", Some(declaration))),
    )
}

fn table(viewer: &Viewer, rows: &[ListedEventType]) -> Markup {
    html! {
        div.table {
            table.rows data-rows {
                thead {
                    tr {
                        th { "Name" } th { "State" } th.number { "Version" } th.optional { "Description" }
                        th.number { "Events, 24 h" } th.right { "Last event" } th.right.roomier { "Changed" }
                    }
                }
                tbody data-live="event-types" { @for row in rows { (type_row(viewer, row)) } }
            }
        }
    }
}

fn type_row(viewer: &Viewer, row: &ListedEventType) -> Markup {
    html! {
        tr data-id=(row.name) {
            td.name { a.mono href=(type_path(viewer, &row.name)) { (row.name) } }
            td.nowrap {
                @match (row.version, row.has_schema) {
                    (None, _) => { span.state.warning { "not declared" } }
                    (Some(_), true) => { span.state.good { "checked by schema" } }
                    (Some(_), false) => { span.state.PENDING { "no schema" } }
                }
            }
            td.number data-label=[row.version.map(|_| "version")] { @if let Some(version) = row.version { (version) } }
            td.wide.optional { (row.description.as_deref().unwrap_or_default()) }
            td.number data-label="events" {
                (events_link(viewer, &word("type:", &row.name), &count(row.events.min(COUNT_CAP), row.events <= COUNT_CAP)))
            }
            td.right.nowrap { @if let Some(at) = row.last_event_at { (time(at)) } }
            td.right.nowrap.optional.roomier { @if let Some(at) = row.updated_at { (time(at)) } }
        }
    }
}

/// Returns the path of the page of a type.
fn type_path(viewer: &Viewer, name: &str) -> String {
    viewer.link(&format!("/ui/event-types/{}", encode_segment(name)))
}

fn new_type() -> Markup {
    html! {
        details.form {
            summary { "Declare an event type" }
            form data-form data-method="PUT" data-path="/event-types/{name}" data-next="/ui/event-types/{name}" {
                (Field::new("name", Kind::Text).in_path().required().hint("As in event_type of events, such as order.charged").render())
                (declaration_fields(None))
                (buttons("Declare"))
            }
        }
    }
}
