//! Operations: work on many rows at once, and how far it is.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::frame::{Section, respond};
use super::parts::{Action, count, empty, json_block, pager, time, with_parameter};
use super::viewer::Viewer;
use crate::domain::history::Numbers;
use crate::domain::operation::{OperationKind, OperationStatus};
use crate::domain::redaction::Redaction;
use crate::domain::shown_filter::shown_filter;
use crate::error::Error;
use crate::http::body::path_id;
use crate::http::query::read_page;
use crate::http::redaction::redaction_for;
use crate::store::lists::pages::page_end;
use crate::store::tables::operations::{
    OperationListFilter, OperationRow, get_operation, list_operations as load_page,
};

const OPERATIONS_PER_PAGE: i64 = 50;

/// More than a filter takes, indented.
const SHOWN_BYTES: usize = 64 * 1024;

/// The maximum length of a filter in the list, in characters.
const FILTER_CHARS: usize = 120;

/// `GET /ui/operations`: shows operations, the newest first.
pub(crate) async fn operations_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let statuses = OperationStatus::ALL.map(OperationStatus::as_str).join(", ");
    let kinds = OperationKind::ALL.map(OperationKind::as_str).join(", ");
    let filter = OperationListFilter {
        status: query.choice("status", OperationStatus::parse, &statuses),
        kind: query.choice("kind", OperationKind::parse, &kinds),
    };
    let mut page = read_page(&mut query, OPERATIONS_PER_PAGE);
    query.finish()?;
    page.descending = true;
    let (page, cursors) =
        page.by_id(&viewer.engine, viewer.scope.namespace, "operations", Numbers::Ids, &filter).await?;
    let mut conn = viewer.engine.database().connection().await?;
    let rows = load_page(&mut conn, &viewer.scope, filter, page).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.id)).await?;
    let redaction = redaction_for(&viewer.engine, &viewer.scope, &viewer.principal).await?;
    let content = html! {
        h1 { "Operations" }
        (status_links(&viewer, filter.status))
        button.new-rows type="button" hidden {}
        @if rows.is_empty() { div data-live="operations" { (no_operations(&viewer)) } } @else { (table(&viewer, &rows, &redaction)) }
        (pager(&viewer, next.as_deref(), None))
    };
    Ok(respond(&request, &viewer, Section::Operations, "Operations", content))
}

fn status_links(viewer: &Viewer, chosen: Option<OperationStatus>) -> Markup {
    let first_page = with_parameter(&viewer.address, "after", "");
    html! {
        nav.pager aria-label="Status" {
            a.button href=(with_parameter(&first_page, "status", "")) aria-current=[chosen.is_none().then_some("true")] { "all" }
            @for status in OperationStatus::ALL {
                a.button href=(with_parameter(&first_page, "status", status.as_str()))
                    aria-current=[(chosen == Some(status)).then_some("true")] { (status.as_str()) }
            }
        }
    }
}

fn no_operations(viewer: &Viewer) -> Markup {
    let body = r#"{"filter": {"tags": ["billing"]}, "reason": "the provider is back"}"#;
    empty(
        "No operation. Retrying, cancelling or replaying all that match a filter is one:",
        Some(&viewer.curl("POST", "/events/retry", Some(body))),
    )
}

fn table(viewer: &Viewer, rows: &[OperationRow], redaction: &Redaction) -> Markup {
    html! {
        div.table {
            table.rows data-rows {
                thead {
                    tr {
                        th { "Operation" } th { "State" } th { "Progress" } th.number.roomier { "Skipped" }
                        th.number { "Failed" } th { "Filter" } th.roomier { "Actor" } th.right { "Started" }
                        @if viewer.may_operate() { th { span.hidden-text { "Actions" } } }
                    }
                }
                tbody data-live="operations" { @for row in rows { (operation_row(viewer, row, redaction)) } }
            }
        }
    }
}

fn operation_row(viewer: &Viewer, row: &OperationRow, redaction: &Redaction) -> Markup {
    let filter: String = shown_filter(&row.filter.0, redaction).as_str().chars().take(FILTER_CHARS).collect();
    html! {
        tr data-id=(row.id) {
            td.nowrap { a href=(viewer.link(&format!("/ui/operations/{}", row.id))) { (row.kind) " " (row.id) } }
            td.nowrap { (state(row)) }
            td.nowrap { (progress(row)) " " (count(row.done, true)) " of " (count(row.matched, row.matched_is_exact)) }
            td.number.optional.roomier { (count(row.skipped, true)) }
            td.number.optional { @if row.failed > 0 { span.error { (count(row.failed, true)) } } @else { "0" } }
            td.wide.optional.mono { (filter) }
            td.optional.roomier { (row.actor.as_deref().unwrap_or_default()) }
            td.right.nowrap { (time(row.created_at)) }
            @if viewer.may_operate() { td { (stop_button(row)) } }
        }
    }
}

fn state(row: &OperationRow) -> Markup {
    let class = match row.status.as_str() {
        "RUNNING" => "PROCESSING",
        other => other,
    };
    html! { span class=(format!("state {class}")) { (row.status) } }
}

fn progress(row: &OperationRow) -> Markup {
    let is_running = row.status == OperationStatus::Running.as_str();
    let so_far = row.done + row.skipped + row.failed;
    let all = if is_running { row.matched.max(so_far).max(1) } else { so_far.max(1) };
    let value = if is_running { so_far } else { all };
    html! { progress max=(all) value=(value) aria-label=(format!("Progress of operation {}", row.id)) {} }
}

fn stop_button(row: &OperationRow) -> Markup {
    if row.status != OperationStatus::Running.as_str() {
        return html! {};
    }
    let action = Action {
        label: "Stop",
        method: "POST",
        path: format!("/operations/{}/cancel", row.id),
        body: None,
        question: "What was done stays done. The rest is left as it is.".to_owned(),
        is_danger: true,
    };
    action.button()
}

/// `GET /ui/operations/{id}`: shows an operation.
pub(crate) async fn operation_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    viewer.take_query().finish()?;
    let mut conn = viewer.engine.database().connection().await?;
    let row = get_operation(&mut conn, &viewer.scope, id).await?.ok_or(Error::OperationNotFound(id))?;
    drop(conn);
    let redaction = redaction_for(&viewer.engine, &viewer.scope, &viewer.principal).await?;
    let content = html! {
        div.head {
            span data-live="state" { (state(&row)) }
            h1 { (row.kind) " " (row.id) }
            @if viewer.may_operate() { div.actions data-live="actions" { (stop_button(&row)) } }
        }
        div data-live="progress" { (progress(&row)) (facts(&row)) }
        h2 { "Filter" }
        (json_block(shown_filter(&row.filter.0, &redaction).as_str(), SHOWN_BYTES))
    };
    Ok(respond(&request, &viewer, Section::Operations, &format!("{} {id}", row.kind), content))
}

fn facts(row: &OperationRow) -> Markup {
    html! {
        dl.facts {
            dt { "matched" } dd { (count(row.matched, row.matched_is_exact)) }
            dt { "done" } dd { (count(row.done, true)) }
            dt { "skipped" } dd { (count(row.skipped, true)) ", which had moved on by then" }
            dt { "failed" } dd { (count(row.failed, true)) }
            dt { "per_second" } dd { (row.per_second) }
            @if let Some(config) = &row.config { dt { "config" } dd { (config) } }
            @if let Some(actor) = &row.actor { dt { "actor" } dd { (actor) } }
            @if let Some(reason) = &row.reason { dt { "reason" } dd { (reason) } }
            dt { "created_at" } dd { (time(row.created_at)) }
            @if let Some(at) = row.started_at { dt { "started_at" } dd { (time(at)) } }
            @if let Some(at) = row.finished_at { dt { "finished_at" } dd { (time(at)) } }
        }
    }
}
