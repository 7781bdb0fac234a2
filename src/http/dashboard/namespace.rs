//! One namespace: its settings, and where its limits stand.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::form_fields::{Field, Kind, buttons, check_box};
use super::frame::{Section, respond};
use super::parts::{count, time};
use super::viewer::Viewer;
use crate::domain::namespace::NamespaceSettings;
use crate::domain::scope::Scope;
use crate::engine::namespaces::not_found;
use crate::error::Error;
use crate::http::namespaces::path_namespace;
use crate::http::usage::{CountView, RateView, Usage, usage_of};
use crate::store::tables::namespaces::{NamespaceRow, get_namespace};

/// `GET /ui/namespaces/{name}`: shows a namespace.
pub(crate) async fn namespace_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    viewer.take_query().finish()?;
    let wanted = path_namespace(&request).await?;
    let mut conn = viewer.engine.database().connection().await?;
    let row = get_namespace(&mut conn, &wanted).await?.ok_or_else(|| not_found(&wanted))?;
    drop(conn);
    let scope = Scope { namespace: row.id, ..viewer.scope.clone() };
    let usage = usage_of(&viewer.engine, &viewer.principal, &scope).await?;
    let settings = serde_json::from_str::<NamespaceSettings>(row.settings.0.as_str());
    let content = html! {
        div.head {
            h1 { (row.name) }
            div.actions { a.button href=(format!("/?namespace={}", row.name)) { "Look at it" } }
        }
        dl.facts { dt { "id" } dd.mono { (row.id) } dt { "created_at" } dd { (time(row.created_at)) } }
        h2 { "Usage" }
        div data-live="usage" { (usage_table(&usage)) }
        h2 { "Settings" }
        @match settings {
            Ok(settings) => { (settings_form(&row, &settings)) }
            Err(_) => { p.error { "A later version of the server has written settings that this one does not know." } }
        }
    };
    Ok(respond(&request, &viewer, Section::Namespaces, &row.name, content))
}

/// Returns where the limits of a namespace stand.
pub(super) fn usage_table(usage: &Usage) -> Markup {
    let of = &usage.namespace;
    html! {
        div.table.form {
            table {
                thead { tr { th { "Limit" } th.number { "Used" } th.number { "At most" } } }
                tbody {
                    (rate_row("publishes_per_second", of.publishes_per_second.as_ref()))
                    (count_row("waiting_events", &of.waiting_events))
                    (count_row("stored_bytes", &of.stored_bytes))
                    (count_row("subscriptions", &of.subscriptions))
                    (count_row("sources", &of.sources))
                }
            }
        }
        p.hint { "What has no limit is not counted. Rates are shared by " (usage.servers) @if usage.servers == 1 { " server." } @else { " servers." } }
    }
}

fn rate_row(name: &str, rate: Option<&RateView>) -> Markup {
    html! {
        tr {
            td { (name) }
            td.number { @if let Some(rate) = rate { (rate.available) " left at once" } }
            td.number { @match rate { Some(rate) => { (rate.limit) ", burst " (rate.burst) } None => { span.muted { "no limit" } } } }
        }
    }
}

fn count_row(name: &str, state: &CountView) -> Markup {
    let is_full = state.limit.zip(state.used).is_some_and(|(limit, used)| used >= limit);
    html! {
        tr {
            td { (name) }
            td.number { @if let Some(used) = state.used { @if is_full { span.state.bad { "full" } " " } (count(used, true)) } }
            td.number { @match state.limit { Some(limit) => { (count(limit, true)) } None => { span.muted { "no limit" } } } }
        }
    }
}

fn settings_form(row: &NamespaceRow, settings: &NamespaceSettings) -> Markup {
    let limits = settings.limits.clone().unwrap_or_default();
    let patterns = settings.redact.as_deref().unwrap_or_default().join("\n");
    let limit = |name: &str, value: Option<String>, hint: &str| {
        Field::new(name, Kind::Number).value(&value.unwrap_or_default()).hint(hint).or_null().render()
    };
    html! {
        form.form data-form data-method="PATCH" data-path=(format!("/namespaces/{}", row.name)) {
            (check_box("settings.strict_event_types", settings.strict_event_types == Some(true), "Events of types that are not declared are refused.", None))
            (Field::new("settings.redact", Kind::Lines).value(&patterns).or_empty()
                .hint("Fields that nobody is shown, one per line: payload.card.*, result.token").render())
            fieldset.pairs {
                legend { "limits " span.muted { "An empty field is no limit." } }
                (limit("settings.limits.publishes_per_second", limits.publishes_per_second.map(|limit| limit.to_string()), "Events that may be published per second."))
                (limit("settings.limits.publish_burst", limits.publish_burst.map(|limit| limit.to_string()), "Events that may be published at once."))
                (limit("settings.limits.waiting_events", limits.waiting_events.map(|limit| limit.to_string()), "Events that may wait for a worker."))
                (limit("settings.limits.stored_bytes", limits.stored_bytes.map(|limit| limit.to_string()), "Bytes of the payloads that are stored."))
                (limit("settings.limits.subscriptions", limits.subscriptions.map(|limit| limit.to_string()), ""))
                (limit("settings.limits.sources", limits.sources.map(|limit| limit.to_string()), ""))
            }
            (buttons("Change"))
        }
    }
}
