//! The API keys of a namespace.

use actix_web::{HttpRequest, HttpResponse};
use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::frame::{Section, respond};
use super::parts::{count, empty, pager, time};
use super::viewer::Viewer;
use crate::domain::history::Numbers;
use crate::error::Error;
use crate::http::query::read_page;
use crate::store::lists::pages::page_end;
use crate::store::tables::api_keys::{ListedKey, list_keys as load_page};

const KEYS_PER_PAGE: i64 = 50;

/// `GET /ui/keys`: shows keys, the newest first.
pub(crate) async fn keys_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let mut page = read_page(&mut query, KEYS_PER_PAGE);
    query.finish()?;
    page.descending = true;
    let (page, cursors) = page.by_id(&viewer.engine, viewer.scope.namespace, "keys", Numbers::Ids, &()).await?;
    viewer.engine.record_key_use().await?;
    let mut conn = viewer.engine.database().connection().await?;
    let rows = load_page(&mut conn, &viewer.scope, page).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.id.0)).await?;
    let content = html! {
        div.head {
            h1 { "Keys" }
            div.actions { a.button href=(viewer.link("/ui/keys/new")) { "New key" } }
        }
        @if !viewer.has_logged_in() {
            p { span.state.warning { "open" } " This server has no key: whoever reaches it may do everything. The first key closes it." }
        }
        button.new-rows type="button" hidden {}
        @if rows.is_empty() { div data-live="keys" { (no_keys(&viewer)) } } @else { (table(&viewer, &rows)) }
        (pager(&viewer, next.as_deref(), None))
    };
    Ok(respond(&request, &viewer, Section::Keys, "Keys", content))
}

fn no_keys(viewer: &Viewer) -> Markup {
    let key = r#"{"name": "ops", "scopes": ["admin"]}"#;
    empty("No key in this namespace. Make one:", Some(&viewer.curl("POST", "/keys", Some(key))))
}

fn table(viewer: &Viewer, rows: &[ListedKey]) -> Markup {
    let now = viewer.engine.time();
    html! {
        div.table {
            table.rows data-rows {
                thead {
                    tr {
                        th { "Name" } th { "State" } th { "Scopes" } th { "Tags" } th.roomy { "Namespace" } th.roomier { "Begins with" }
                        th.number.roomy { "Rate" } th.number.roomier { "Sessions" } th { "Expires" } th.right { "Last used" }
                    }
                }
                tbody data-live="keys" { @for row in rows { (key_row(viewer, row, now)) } }
            }
        }
    }
}

fn key_row(viewer: &Viewer, row: &ListedKey, now: DateTime<Utc>) -> Markup {
    html! {
        tr data-id=(row.id) {
            td.name { a href=(viewer.link(&format!("/ui/keys/{}", row.id))) { (row.name) } }
            td.nowrap { (key_state(row, now)) }
            td { (row.scopes.join(", ")) }
            td.optional { (tags_of(row)) }
            td.optional.roomy { (row.namespace) }
            td.optional.roomier.mono { (row.prefix) "…" }
            td.number.nowrap.optional.roomy { (rate_of(row)) }
            td.number.optional.roomier { (count(row.sessions, true)) }
            td.nowrap data-label="expires" { @match row.expires_at { Some(at) => { (time(at)) } None => { span.muted { "never" } } } }
            td.right.nowrap data-label="used" { @match row.last_used_at { Some(at) => { (time(at)) } None => { span.muted { "not yet" } } } }
        }
    }
}

pub(super) fn key_state(row: &ListedKey, now: DateTime<Utc>) -> Markup {
    html! {
        @if row.revoked_at.is_some() { span.state.CANCELLED { "revoked" } }
        @else if !row.is_in_use(now) { span.state.CANCELLED { "expired" } }
        @else if row.secrets > 1 { span.state.retry { "rotating" } }
        @else { span.state.good { "in use" } }
    }
}

/// Returns the tags to which a key is limited.
pub(super) fn tags_of(row: &ListedKey) -> Markup {
    html! { @match &row.tag_patterns { Some(patterns) => { (patterns.join(", ")) } None => { span.muted { "all" } } } }
}

/// Returns how much may be published with a key.
pub(super) fn rate_of(row: &ListedKey) -> Markup {
    html! {
        @match row.rate() {
            (Some(rate), Some(burst)) => { (rate) "/s, burst " (burst) }
            (Some(rate), None) => { (rate) "/s" }
            (None, _) => { span.muted { "no limit" } }
        }
    }
}
