//! The namespaces, and the form of a new one.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::form_fields::{Field, Kind, buttons};
use super::frame::{Section, respond};
use super::parts::{pager, time};
use super::viewer::Viewer;
use crate::domain::ids::NamespaceId;
use crate::domain::namespace::NamespaceSettings;
use crate::error::Error;
use crate::http::query::read_page;
use crate::store::lists::pages::page_end;
use crate::store::tables::namespaces::{NamespaceRow, list_namespaces as load_page};

const NAMESPACES_PER_PAGE: i64 = 50;

/// `GET /ui/namespaces`: shows namespaces.
pub(crate) async fn namespaces_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let page = read_page(&mut query, NAMESPACES_PER_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_name(&viewer.engine, NamespaceId::DEFAULT, "namespaces").await?;
    let mut conn = viewer.engine.database().connection().await?;
    let rows = load_page(&mut conn, &page).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.name.clone())).await?;
    let content = html! {
        h1 { "Namespaces" }
        p.muted { "A namespace has its own events, subscriptions, sources, event types and keys. Its name stays for ever." }
        div.table {
            table.rows data-rows {
                thead { tr { th { "Name" } th { "Settings" } th.right.optional { "Created" } th { span.hidden-text { "Look at it" } } } }
                tbody { @for row in &rows { (namespace_row(&viewer, row)) } }
            }
        }
        (pager(&viewer, next.as_deref(), None))
        (new_form())
    };
    Ok(respond(&request, &viewer, Section::Namespaces, "Namespaces", content))
}

fn namespace_row(viewer: &Viewer, row: &NamespaceRow) -> Markup {
    html! {
        tr data-id=(row.id) {
            td.name { a href=(viewer.link(&format!("/ui/namespaces/{}", row.name))) { (row.name) } }
            td.wide { (in_short(row)) }
            td.right.nowrap.optional { (time(row.created_at)) }
            td.nowrap { a href=(format!("/?namespace={}", row.name)) { "Look at it" } }
        }
    }
}

/// Returns the settings of a namespace in a few words.
fn in_short(row: &NamespaceRow) -> String {
    let Ok(settings) = serde_json::from_str::<NamespaceSettings>(row.settings.0.as_str()) else {
        return "of a later version".to_owned();
    };
    let mut words = Vec::new();
    if settings.strict_event_types == Some(true) {
        words.push("strict_event_types".to_owned());
    }
    if settings.limits.as_ref().is_some_and(|limits| *limits != Default::default()) {
        words.push("limits".to_owned());
    }
    let patterns = settings.redact.map_or(0, |patterns| patterns.len());
    if patterns > 0 {
        words.push(format!("redact ({patterns})"));
    }
    words.join(", ")
}

fn new_form() -> Markup {
    html! {
        h2 { "New namespace" }
        form.form data-form data-path="/namespaces" data-next="/ui/namespaces/{name}" {
            (Field::new("name", Kind::Text).required().hint("Lower-case letters, digits and hyphens. It cannot be changed or removed.").render())
            (buttons("Create"))
        }
    }
}
