//! One API key, and the form of a new one.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::form_fields::{Field, Kind, buttons, check_boxes};
use super::frame::{Section, respond};
use super::keys::{key_state, rate_of, tags_of};
use super::parts::{Action, count, encode, time};
use super::viewer::Viewer;
use crate::domain::api_key::KeyScope;
use crate::domain::ids::KeyId;
use crate::error::Error;
use crate::http::body::path_id;
use crate::store::tables::api_keys::{ListedKey, get_key};

/// `GET /ui/keys/{id}`: shows a key.
pub(crate) async fn key_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let id: KeyId = path_id(&request).await?;
    viewer.take_query().finish()?;
    viewer.engine.record_key_use().await?;
    let mut conn = viewer.engine.database().connection().await?;
    let row = get_key(&mut conn, &viewer.scope, id).await?.ok_or(Error::KeyNotFound(id))?;
    drop(conn);
    let is_in_use = row.is_in_use(viewer.engine.time());
    let content = html! {
        div.head {
            span data-live="state" { (key_state(&row, viewer.engine.time())) }
            h1 { (row.name) }
            div.actions data-live="actions" { @if is_in_use { (revoke_button(&row)) } }
        }
        div data-live="facts" { (facts(&viewer, &row)) }
        @if is_in_use { (rotate_form(&row)) (rate_form(&row)) }
    };
    Ok(respond(&request, &viewer, Section::Keys, &row.name, content))
}

fn facts(viewer: &Viewer, row: &ListedKey) -> Markup {
    let audit = viewer.link(&format!("/ui/audit?actor={}", encode(&row.name)));
    html! {
        dl.facts {
            dt { "id" } dd.mono { (row.id) }
            dt { "namespace" } dd { (row.namespace) }
            dt { "prefix" } dd.mono { (row.prefix) "…" }
            dt { "scopes" } dd { (row.scopes.join(", ")) }
            dt { "tag_patterns" } dd { (tags_of(row)) }
            dt { "publishes_per_second" } dd { (rate_of(row)) }
            dt { "secrets" } dd { (row.secrets) }
            dt { "sessions" } dd { (count(row.sessions, true)) @if row.sessions > 0 { ", which end with the key" } }
            dt { "expires_at" } dd { @match row.expires_at { Some(at) => { (time(at)) } None => { "never" } } }
            @if let Some(at) = row.revoked_at { dt { "revoked_at" } dd { (time(at)) } }
            dt { "last_used_at" } dd { @match row.last_used_at { Some(at) => { (time(at)) } None => { "not yet" } } }
            dt { "created_at" } dd { (time(row.created_at)) @if let Some(by) = &row.created_by { " by " (by) } }
            dt { "what it did" } dd { a href=(audit) { "Audit" } }
        }
    }
}

fn revoke_button(row: &ListedKey) -> Markup {
    let action = Action {
        label: "Revoke",
        method: "POST",
        path: format!("/keys/{}/revoke", row.id),
        body: None,
        question: format!("{} and its {} sessions end at once, on all servers, for good.", row.name, row.sessions),
        is_danger: true,
    };
    action.button()
}

fn rotate_form(row: &ListedKey) -> Markup {
    html! {
        h2 { "Rotate the secret" }
        p.muted { "The key gets a new secret, which is shown once. The old one, and the sessions of the key, end after the overlap." }
        form.form data-form data-path=(format!("/keys/{}/rotate", row.id)) data-secret="key" {
            (Field::new("overlap_seconds", Kind::Number).hint("A day (86400) if left empty. 0 after a leak.").render())
            (buttons("Rotate"))
        }
    }
}

fn rate_form(row: &ListedKey) -> Markup {
    let (rate, burst) = row.rate();
    let text = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    html! {
        h2 { "Change how much may be published with it" }
        p.muted { "What a key allows cannot be changed: make another one instead." }
        form.form data-form data-method="PATCH" data-path=(format!("/keys/{}", row.id)) {
            (Field::new("publishes_per_second", Kind::Number).value(&text(rate)).or_null().hint("Empty: as much as the namespace may.").render())
            (Field::new("publish_burst", Kind::Number).value(&text(burst)).or_null().hint("Events at once. Empty: as many as per second.").render())
            (buttons("Change"))
        }
    }
}

/// Returns what a scope allows, for the person who chooses it.
fn meaning(scope: KeyScope) -> &'static str {
    match scope {
        KeyScope::Publish => "publish events",
        KeyScope::Work => "claim and settle events",
        KeyScope::Read => "see lists and items, without contents",
        KeyScope::Reveal => "see payloads, results and error texts",
        KeyScope::Operate => "retry, cancel, replay; edit subscriptions, sources and event types",
        KeyScope::Admin => "everything, including keys",
    }
}

/// `GET /ui/keys/new`: shows the form of a new key.
pub(crate) async fn new_key_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    viewer.take_query().finish()?;
    let scopes = KeyScope::ALL.map(|scope| (scope.as_str(), meaning(scope)));
    let content = html! {
        h1 { "New key" }
        @if !viewer.has_logged_in() {
            p { span.state.warning { "open" } " The first key must have the scope admin. From then on, this server asks for keys." }
        }
        form.form data-form data-path="/keys" data-secret="key" data-next="/ui/keys/{id}" {
            (Field::new("name", Kind::Text).required().hint("Who did it, in logs and records. Give each program and each person their own.").render())
            (check_boxes("scopes", &scopes))
            (Field::new("tag_patterns", Kind::Commas).hint("Tags that it may publish to and work on, such as billing.*, mail. Empty: all.").render())
            (Field::new("expires_at", Kind::Time).hint("In your time zone. Empty: never.").render())
            (Field::new("publishes_per_second", Kind::Number).hint("Empty: as much as the namespace may.").render())
            (Field::new("publish_burst", Kind::Number).render())
            (buttons("Create"))
        }
    };
    Ok(respond(&request, &viewer, Section::Keys, "New key", content))
}
