//! The audit log: who changed what, when, and from which address.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::filter_fields::{FilterField, filter_fields, reasons};
use super::frame::{Section, respond};
use super::parts::{empty, encode_segment, json_block, pager, time};
use super::viewer::Viewer;
use crate::domain::audit::AuditAction;
use crate::domain::history::Numbers;
use crate::domain::limits;
use crate::error::Error;
use crate::http::query::{Query, read_page};
use crate::store::lists::audit_entries::{AuditFilter, AuditRow, list_audit_entries};

const ENTRIES_PER_PAGE: i64 = 50;

/// A part of a detail that is longer, in bytes, is folded.
const OPEN_BYTES: usize = 400;

/// An object in a detail that is longer, in bytes, is folded: the settings of something new are.
const OPEN_OBJECT_BYTES: usize = 160;

/// As much as the detail of an entry has.
const SHOWN_BYTES: usize = 128 * 1024;

/// `GET /ui/audit`: shows audit entries, the newest first.
pub(crate) async fn audit_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let form = filter_fields(
        &viewer,
        &[
            FilterField::Choice { name: "action", choices: &AuditAction::ALL.map(AuditAction::as_str) },
            FilterField::Text { name: "actor", placeholder: "ops" },
            FilterField::Text { name: "since", placeholder: "24h, or a time" },
            FilterField::Text { name: "until", placeholder: "15m, or a time" },
        ],
    );
    let mut query = viewer.take_query_with_ages();
    let filter = read_filter(&mut query);
    let mut page = read_page(&mut query, ENTRIES_PER_PAGE);
    page.descending = true;
    let content = match query.finish() {
        Ok(()) => {
            let (page, cursors) =
                page.by_id(&viewer.engine, viewer.scope.namespace, "audit", Numbers::LogIds, &filter).await?;
            let mut conn = viewer.engine.database().connection().await?;
            let (rows, end) = list_audit_entries(&mut conn, &viewer.scope, &filter, page).await?;
            drop(conn);
            let next = cursors.next(end).await?;
            html! {
                button.new-rows type="button" hidden {}
                @if rows.is_empty() { div data-live="audit" { (no_entries(&filter)) } } @else { (table(&viewer, &rows)) }
                (pager(&viewer, next.as_deref(), None))
            }
        }
        Err(error) => html! { p.error role="alert" { (reasons(&Error::from(error))) } },
    };
    let content = html! { h1 { "Audit" } (form) (content) };
    Ok(respond(&request, &viewer, Section::Audit, "Audit", content))
}

fn read_filter(query: &mut Query) -> AuditFilter {
    let actions = AuditAction::ALL.map(AuditAction::as_str).join(", ");
    AuditFilter {
        action: query.choice("action", AuditAction::parse, &actions),
        actor: query.text("actor", limits::NAME_CHARS),
        since: query.timestamp("since"),
        until: query.timestamp("until"),
    }
}

fn no_entries(filter: &AuditFilter) -> Markup {
    let is_everything =
        filter.action.is_none() && filter.actor.is_none() && filter.since.is_none() && filter.until.is_none();
    empty(
        if is_everything {
            "Nothing yet. Changes of subscriptions, sources, keys, namespaces and event types, and operations, appear here, with who made them."
        } else {
            "No entry matches."
        },
        None,
    )
}

fn table(viewer: &Viewer, rows: &[AuditRow]) -> Markup {
    html! {
        div.table {
            table.rows data-rows {
                thead { tr { th { "When" } th { "Action" } th { "Actor" } th.roomier { "Address" } th { "Subject" } th { "What changed" } } }
                tbody data-live="audit" { @for row in rows { (entry_row(viewer, row)) } }
            }
        }
    }
}

fn entry_row(viewer: &Viewer, row: &AuditRow) -> Markup {
    let detail: Map<String, Value> = serde_json::from_str(row.detail.0.as_str()).unwrap_or_default();
    html! {
        tr data-id=(row.id) {
            td.nowrap { (time(row.created_at)) }
            td { (row.action) }
            td { @match &row.actor { Some(actor) => { (actor) } None => { span.muted { "nobody" } } } }
            td.mono.nowrap.roomier { (row.address.as_deref().unwrap_or_default()) }
            td { (subject(viewer, row, &detail)) }
            td.detail { (what_changed(&detail, row.detail.0.as_str())) }
        }
    }
}

/// Returns the detail of an entry: what is short as it is, and the whole folded if there is more.
fn what_changed(detail: &Map<String, Value>, json: &str) -> Markup {
    let changes = detail.get("changes").and_then(Value::as_object);
    let is_folded = |(name, value): (&String, &Value)| match value {
        Value::Object(_) if name != "changes" => value.to_string().len() > OPEN_OBJECT_BYTES,
        Value::Object(_) | Value::Array(_) => !is_short(value),
        _ => false,
    };
    let has_more = detail.iter().any(is_folded);
    let is_shown = |(name, value): &(&String, &Value)| {
        is_scalar(value) || !value.is_null() && *name != "changes" && !is_folded((*name, *value))
    };
    html! {
        @for (name, value) in detail.iter().filter(is_shown) {
            span.muted { (name) } " " (text_of(value)) " "
        }
        @if let Some(changes) = changes.filter(|_| is_short(&detail["changes"])) {
            ul.changes { @for (field, change) in changes { li { span.muted { (field) } " " (change_of(change)) } } }
        }
        @if has_more { details { summary { "all of it" } (json_block(json, SHOWN_BYTES)) } }
    }
}

fn is_scalar(value: &Value) -> bool {
    value.is_string() || value.is_number() || value.is_boolean()
}

fn is_short(value: &Value) -> bool {
    value.to_string().len() <= OPEN_BYTES
}

/// Returns what a field was, and what it is now.
fn change_of(change: &Value) -> Markup {
    html! {
        @match (change.get("from"), change.get("to")) {
            (Some(from), Some(to)) => { (text_of(from)) " → " (text_of(to)) }
            _ => { (text_of(change)) }
        }
    }
}

/// Returns a text without quotes, and anything else as JSON.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the link to what an entry is about. It may not exist any more.
fn subject(viewer: &Viewer, row: &AuditRow, detail: &Map<String, Value>) -> Markup {
    let (Some(kind), Some(id)) = (&row.subject_kind, row.subject_id) else { return html! {} };
    let name = detail.get("name").or_else(|| detail.get("settings")?.get("name")).and_then(Value::as_str);
    let part = match name {
        Some(name) if matches!(kind.as_str(), "event_type" | "namespace") => encode_segment(name),
        _ => id.to_string(),
    };
    let page = match kind.as_str() {
        "event_type" => "event-types",
        "subscription" => "subscriptions",
        "source" => "sources",
        "key" => "keys",
        "namespace" => "namespaces",
        "operation" => "operations",
        _ => return html! { (kind) " " (id) },
    };
    html! {
        a href=(viewer.link(&format!("/ui/{page}/{part}"))) {
            (kind) " " @match name { Some(name) => { (name) } None => { (id) } }
        }
    }
}
