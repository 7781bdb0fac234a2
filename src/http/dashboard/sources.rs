//! The sources, where webhooks of other systems come in.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::filter_line::word;
use super::frame::{Section, respond};
use super::parts::{count, empty, events_link, pager, time};
use super::viewer::Viewer;
use crate::domain::history::Numbers;
use crate::domain::source::SourceSpec;
use crate::error::Error;
use crate::http::query::read_page;
use crate::store::lists::pages::page_end;
use crate::store::tables::sources::{SourceFilter, SourceRow, list_sources as load_page};

const SOURCES_PER_PAGE: i64 = 50;

/// `GET /ui/sources`: shows sources.
pub(crate) async fn sources_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let filter = SourceFilter { is_active: query.boolean("is_active") };
    let page = read_page(&mut query, SOURCES_PER_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_id(&viewer.engine, viewer.scope.namespace, "sources", Numbers::Ids, &filter).await?;
    viewer.engine.record_refused_webhooks().await?;
    let mut conn = viewer.engine.database().connection().await?;
    let rows = load_page(&mut conn, &viewer.scope, &filter, page).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.id.0)).await?;
    let content = html! {
        div.head {
            h1 { "Sources" }
            @if viewer.may_operate() {
                div.actions { a.button href=(viewer.link("/ui/sources/new")) { "New source" } }
            }
        }
        p.muted { "A source takes the webhooks of another system as they are, verifies them, and makes events of them." }
        button.new-rows type="button" hidden {}
        @if rows.is_empty() { div data-live="sources" { (no_sources(&viewer)) } } @else { (table(&viewer, &rows)) }
        (pager(&viewer, next.as_deref(), None))
    };
    Ok(respond(&request, &viewer, Section::Sources, "Sources", content))
}

fn no_sources(viewer: &Viewer) -> Markup {
    let source = r#"{"name": "github", "provider": "github", "tags": ["ci"], "verify": {"secret": "…"}}"#;
    empty("No source yet. Make one:", Some(&viewer.curl("POST", "/sources", Some(source))))
}

fn table(viewer: &Viewer, rows: &[SourceRow]) -> Markup {
    html! {
        div.table {
            table.rows data-rows {
                thead {
                    tr {
                        th { "Name" } th { "State" } th { "Verified by" } th { "Tags" } th { "Path" }
                        th.number { "Refused" } th.roomier { "Last refusal" } th.right.roomier { "Changed" }
                    }
                }
                tbody data-live="sources" { @for row in rows { (source_row(viewer, row)) } }
            }
        }
    }
}

fn source_row(viewer: &Viewer, row: &SourceRow) -> Markup {
    let spec = SourceSpec::from_stored(&row.spec.0);
    let name = spec.as_ref().map_or("of a later version", |spec| spec.name.as_str());
    html! {
        tr data-id=(row.id) {
            td.name { a href=(viewer.link(&format!("/ui/sources/{}", row.id))) { (name) } }
            td.nowrap { (source_state(row)) }
            td.nowrap { @if let Some(spec) = &spec { (spec.verify.scheme()) } }
            td.tags {
                @for tag in spec.iter().flat_map(|spec| spec.tags.as_slice()) { (events_link(viewer, &word("tag:", tag), tag)) " " }
            }
            td.wide.optional.mono { (path_of(viewer, row)) }
            td.number data-label="refused" { @if row.refused > 0 { span.error { (count(row.refused, true)) } } @else { "0" } }
            td.wide.optional.roomier {
                @if let Some(at) = row.last_refused_at { (time(at)) " " (row.last_refusal.as_deref().unwrap_or_default()) }
            }
            td.right.nowrap.optional.roomier { (time(row.updated_at)) }
        }
    }
}

pub(super) fn source_state(row: &SourceRow) -> Markup {
    html! { @if row.is_active { span.state.good { "active" } } @else { span.state.CANCELLED { "not active" } } }
}

/// Returns the path to which webhooks are sent. Whoever knows it may try, so it is shown to those who may change it.
pub(super) fn path_of(viewer: &Viewer, row: &SourceRow) -> String {
    if !viewer.may_operate() {
        return "/in/…".to_owned();
    }
    let token = viewer.engine.token_of(viewer.scope.namespace, row);
    token.map_or_else(|| "/in/… (encrypted with another key)".to_owned(), |token| format!("/in/{token}"))
}
