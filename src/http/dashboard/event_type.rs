//! One event type: its schema, its examples, its versions, and the form that changes them.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::filter_line::word;
use super::form_fields::{Field, Kind, buttons, check_box};
use super::frame::{Section, respond};
use super::json_text::pretty;
use super::parts::{Action, encode_segment, events_link, json_block, time};
use super::viewer::Viewer;
use crate::domain::event_type::rejection::RecentEvents;
use crate::error::Error;
use crate::http::event_types::path_name;
use crate::http::redaction::redaction_for;
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::event_types::{EventTypeRow, get_event_type, get_event_type_version, kept_versions};

/// More than any schema and its examples take, indented.
const SHOWN_BYTES: usize = 1024 * 1024;

/// What the page shows of a type.
struct Shown {
    row: EventTypeRow,
    /// The versions that are kept, the latest first.
    versions: Vec<i32>,
    /// The version whose schema is shown.
    version: i32,
    schema: Option<JsonColumn>,
    /// What the present schema does to the latest events, if the viewer asks for that.
    recent: Option<RecentEvents>,
}

/// `GET /ui/event-types/{name}`: shows an event type.
pub(crate) async fn event_type_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let version = query.integer("version", 1..=i32::MAX);
    let has_check = query.boolean("check").unwrap_or(false);
    query.finish()?;
    let name = path_name(&request).await?;
    let content = match load(&viewer, &name, version, has_check).await? {
        Some(shown) => declared(&viewer, &shown),
        None => undeclared(&viewer, &name),
    };
    Ok(respond(&request, &viewer, Section::EventTypes, &name, content))
}

async fn load(viewer: &Viewer, name: &str, version: Option<i32>, has_check: bool) -> Result<Option<Shown>, Error> {
    let mut conn = viewer.engine.database().connection().await?;
    let Some(row) = get_event_type(&mut conn, &viewer.scope, name).await? else { return Ok(None) };
    let versions = kept_versions(&mut conn, &viewer.scope, name).await?;
    let schema = match version.filter(|version| *version != row.version) {
        None => row.schema.clone(),
        Some(version) => {
            let missing = || Error::EventTypeVersionNotFound { name: name.to_owned(), version };
            get_event_type_version(&mut conn, &viewer.scope, name, version).await?.ok_or_else(missing)?
        }
    };
    drop(conn);
    // As for those who may declare types: which payloads fit a schema says something about payloads.
    let recent = match has_check && viewer.may_operate() {
        true => {
            let redaction = redaction_for(&viewer.engine, &viewer.scope, &viewer.principal).await?;
            Some(viewer.engine.check_events_of(&viewer.scope, &row, redaction).await?)
        }
        false => None,
    };
    let version = version.unwrap_or(row.version);
    Ok(Some(Shown { row, versions, version, schema, recent }))
}

fn undeclared(viewer: &Viewer, name: &str) -> Markup {
    html! {
        div.head { span.state.warning { "not declared" } h1.mono { (name) } }
        p { "Events may have this type, and their payloads are not checked. " (events_link(viewer, &word("type:", name), "Show its events")) }
        @if viewer.may_operate() { h2 { "Declare it" } (edit_form(name, None)) }
    }
}

fn declared(viewer: &Viewer, shown: &Shown) -> Markup {
    let row = &shown.row;
    html! {
        div.head {
            span.state.good { "version " (row.version) }
            h1.mono { (row.name) }
            @if viewer.may_operate() { div.actions { (delete_button(viewer, &row.name)) } }
        }
        @if let Some(description) = &row.description { p { (description) } }
        dl.facts {
            dt { "events" } dd { (events_link(viewer, &word("type:", &row.name), "Show its events")) }
            dt { "versions" } dd { @for version in &shown.versions { (version_link(viewer, shown, *version)) " " } }
            dt { "created_at" } dd { (time(row.created_at)) }
            dt { "updated_at" } dd { (time(row.updated_at)) }
        }
        div.columns {
            section aria-label="Schema" {
                h2 { "Schema" @if shown.version != row.version { " of version " (shown.version) } }
                @match &shown.schema {
                    Some(JsonColumn(schema)) => { (json_block(schema.as_str(), SHOWN_BYTES)) }
                    None => { p.muted { "Without a schema, every payload is accepted." } }
                }
                (recent_events(viewer, shown))
            }
            section aria-label="Examples" {
                h2 { "Examples" }
                @if row.examples.0.as_str() == "[]" { p.muted { "There are none." } } @else { (json_block(row.examples.0.as_str(), SHOWN_BYTES)) }
            }
        }
        @if viewer.may_operate() { h2 { "Change it" } (edit_form(&row.name, Some(row))) }
    }
}

fn version_link(viewer: &Viewer, shown: &Shown, version: i32) -> Markup {
    let path = format!("/ui/event-types/{}?version={version}", encode_segment(&shown.row.name));
    html! { a.button href=(viewer.link(&path)) aria-current=[(version == shown.version).then_some("true")] { (version) } }
}

/// Returns which of the latest events the schema would refuse, or the link that asks for it: payloads are read for it, so
/// it is done only for those who want to know.
fn recent_events(viewer: &Viewer, shown: &Shown) -> Markup {
    if shown.row.schema.is_none() || !viewer.may_operate() {
        return html! {};
    }
    let Some(recent) = &shown.recent else {
        let path = format!("/ui/event-types/{}?check=true", encode_segment(&shown.row.name));
        return html! { p { a href=(viewer.link(&path)) { "Check the latest events against this schema" } } };
    };
    html! {
        h2 { "Latest events" }
        @if recent.rejected == 0 {
            p { span.state.good { "none rejected" } " of " (recent.checked) " events" }
        } @else {
            p { span.state.bad { (recent.rejected) " rejected" } " of the latest " (recent.checked) " events, if they were published now:" }
            ul {
                @for rejection in &recent.rejections {
                    li {
                        a.mono href=(viewer.link(&format!("/ui/events/{}", rejection.event_id))) { (rejection.event_id) }
                        @for error in &rejection.errors { " " span.muted { (error.field) ": " (error.reason) } }
                    }
                }
            }
        }
    }
}

fn delete_button(viewer: &Viewer, name: &str) -> Markup {
    let action = Action {
        label: "Delete",
        method: "DELETE",
        path: format!("/event-types/{}", encode_segment(name)),
        body: None,
        question: format!(
            "The type {name} and all versions of its schema are removed. Its events stay, and new ones are not checked any more."
        ),
        is_danger: true,
    };
    action.button_to(&viewer.link("/ui/event-types"))
}

fn edit_form(name: &str, row: Option<&EventTypeRow>) -> Markup {
    let etag = row.map(|row| format!("\"{}\"", row.revision));
    html! {
        form.form data-form data-method="PUT" data-path=(format!("/event-types/{}", encode_segment(name)))
            data-if-match=[etag] {
            (declaration_fields(row))
            @if row.is_some() {
                (check_box("force", false, "Change it even if the latest events do not fit the schema.", Some("query")))
            }
            (buttons(if row.is_some() { "Change" } else { "Declare" }))
        }
    }
}

/// Returns the fields of what is declared.
pub(super) fn declaration_fields(row: Option<&EventTypeRow>) -> Markup {
    let description = row.and_then(|row| row.description.as_deref()).unwrap_or_default();
    let schema = row.and_then(|row| row.schema.as_ref());
    let examples = row.map(|row| &row.examples).filter(|examples| examples.0.as_str() != "[]");
    html! {
        (Field::new("description", Kind::Text).value(description).render())
        (json_field("schema", schema, "A JSON Schema for payloads. Empty: every payload is accepted."))
        (json_field("examples", examples, "A list of payloads that fit the schema."))
    }
}

fn json_field(name: &str, json: Option<&JsonColumn>, hint: &str) -> Markup {
    let field = Field::new(name, Kind::Json).hint(hint);
    match json {
        Some(JsonColumn(json)) => field.value(&pretty(json.as_str(), SHOWN_BYTES).0).stored(json.as_str()).render(),
        None => field.render(),
    }
}
