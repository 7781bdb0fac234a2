//! One source: its facts, the forms that change it, and the form of a new one.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::filter_line::word;
use super::form_fields::{Field, Kind, buttons, check_box, select};
use super::frame::{Section, respond};
use super::json_text::pretty;
use super::parts::{Action, count, events_link, json_block, time};
use super::sources::{path_of, source_state};
use super::viewer::Viewer;
use crate::domain::source::PROVIDERS;
use crate::error::Error;
use crate::http::body::path_id;
use crate::store::tables::sources::{SourceRow, get_source};

/// More than the settings of a source take, indented.
const SHOWN_BYTES: usize = 1024 * 1024;

/// The settings that are objects, with what they mean.
const OBJECTS: &[(&str, &str)] = &[
    (
        "verify",
        "How the sender proves who it is: {\"scheme\": \"hmac\", \"header\": \"X-Signature\"}. The secret is set below.",
    ),
    ("event_type_from", "Where the event_type is: {\"header\": \"X-Event\"} or {\"path\": \"type\"}."),
    ("idempotency_key_from", "Where the key is by which a repeated webhook is recognised."),
    ("labels", "Labels of the events: {\"team\": \"core\"}."),
    ("respond", "The response to a webhook that was accepted: {\"status\": 200}."),
];

/// `GET /ui/sources/{id}`: shows a source.
pub(crate) async fn source_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    viewer.take_query().finish()?;
    viewer.engine.record_refused_webhooks().await?;
    let mut conn = viewer.engine.database().connection().await?;
    let row = get_source(&mut conn, &viewer.scope, id).await?.ok_or(Error::SourceNotFound(id))?;
    drop(conn);
    let spec: Map<String, Value> = serde_json::from_str(row.spec.0.as_str()).unwrap_or_default();
    let name = text_of(&spec, "name");
    let content = html! {
        div.head {
            span data-live="state" { (source_state(&row)) }
            h1 { (name) }
            @if viewer.may_operate() { div.actions { (delete_button(&viewer, &row, name)) } }
        }
        div.columns {
            section aria-label="Facts" {
                div data-live="facts" { (facts(&viewer, &row, &spec)) }
                (example(&viewer, &row))
            }
            // Those who may change the settings see them in the form.
            @if !viewer.may_operate() {
                section aria-label="Settings" { h2 { "Settings" } (json_block(row.spec.0.as_str(), SHOWN_BYTES)) }
            }
        }
        @if viewer.may_operate() { (edit_form(&row, &spec)) (rotate_form(&row)) }
    };
    Ok(respond(&request, &viewer, Section::Sources, name, content))
}

fn text_of<'a>(spec: &'a Map<String, Value>, name: &str) -> &'a str {
    spec.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn tags_of(spec: &Map<String, Value>) -> Vec<&str> {
    spec.get("tags").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn facts(viewer: &Viewer, row: &SourceRow, spec: &Map<String, Value>) -> Markup {
    let scheme = spec.get("verify").and_then(|verify| verify.get("scheme")).and_then(Value::as_str);
    html! {
        dl.facts {
            dt { "path" } dd.mono { (path_of(viewer, row)) }
            dt { "provider" } dd { (spec.get("provider").and_then(Value::as_str).unwrap_or("none")) }
            dt { "scheme" } dd { (scheme.unwrap_or_default()) }
            dt { "tags" } dd { @for tag in tags_of(spec) { (events_link(viewer, &word("tag:", tag), tag)) " " } }
            dt { "refused" } dd { (count(row.refused, true)) }
            @if let Some(at) = row.last_refused_at {
                dt { "last refusal" } dd { (time(at)) ": " (row.last_refusal.as_deref().unwrap_or_default()) }
            }
            dt { "version" } dd { (row.version) }
            dt { "created_at" } dd { (time(row.created_at)) }
            dt { "updated_at" } dd { (time(row.updated_at)) }
        }
    }
}

/// Returns the command that sends a webhook, for those who may see the address. Unless the scheme is `none`, it is
/// refused for want of a signature, and counted.
fn example(viewer: &Viewer, row: &SourceRow) -> Markup {
    if !viewer.may_operate() {
        return html! {};
    }
    let command =
        format!("curl -X POST '{}{}' \\\n     -d '{{\"type\": \"test\"}}'", viewer.origin(), path_of(viewer, row));
    html! {
        h2 { "Try it" }
        p.muted { "Without a signature of the sender, the response is 401, and the webhook counts as refused." }
        pre.text #example { (command) }
        button type="button" data-copy="example" { "Copy" }
    }
}

fn delete_button(viewer: &Viewer, row: &SourceRow, name: &str) -> Markup {
    let action = Action {
        label: "Delete",
        method: "DELETE",
        path: format!("/sources/{}", row.id),
        body: None,
        question: format!("The address of {name} ends at once, for good. Events that came from it stay."),
        is_danger: true,
    };
    action.button_to(&viewer.link("/ui/sources"))
}

fn edit_form(row: &SourceRow, spec: &Map<String, Value>) -> Markup {
    html! {
        h2 { "Change it" }
        form.form data-form data-method="PATCH" data-path=(format!("/sources/{}", row.id)) data-if-match=(format!("\"{}\"", row.version)) {
            (check_box("is_active", row.is_active, "Otherwise the address is unknown to senders.", None))
            (Field::new("name", Kind::Text).value(text_of(spec, "name")).required().render())
            (Field::new("tags", Kind::Commas).value(&tags_of(spec).join(", ")).or_empty().hint("Tags of the events, separated by commas.").render())
            @for (name, hint) in OBJECTS { (object_field(name, hint, spec.get(*name))) }
            (buttons("Change"))
        }
    }
}

fn object_field(name: &str, hint: &str, value: Option<&Value>) -> Markup {
    let field = Field::new(name, Kind::Json).hint(hint).or_null();
    let Some(value) = value.filter(|value| !value.is_null()) else { return field.render() };
    let shown = without_nulls(value).to_string();
    field.value(&pretty(&shown, SHOWN_BYTES).0).stored(&value.to_string()).render()
}

/// Returns the settings of an object that it has. The others are `null`.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let given = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(given.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        other => other.clone(),
    }
}

fn rotate_form(row: &SourceRow) -> Markup {
    html! {
        h2 { "Rotate the secret" }
        p.muted { "For the overlap both secrets are good, so the sender can switch at any time within it." }
        form.form data-form data-path=(format!("/sources/{}/rotate-secret", row.id)) {
            (Field::new("secret", Kind::Secret).required().hint("What the sender signs with. It is not shown again.").render())
            (Field::new("overlap_seconds", Kind::Number).hint("86400 if left empty.").render())
            (buttons("Rotate"))
        }
    }
}

/// `GET /ui/sources/new`: shows the form of a new source.
pub(crate) async fn new_source_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let provider = query.choice("provider", known_provider, &PROVIDERS.join(", ")).unwrap_or_default();
    query.finish()?;
    let content = html! {
        h1 { "New source" }
        form.form data-form data-path="/sources" data-next="/ui/sources/{id}" {
            (Field::new("name", Kind::Text).required().value(provider).hint("A name for people, and the type of events in which no type is found.").render())
            (select("provider", &providers(), provider, "Fills in how webhooks are verified, and where their type and their key are."))
            (Field::new("verify.secret", Kind::Secret).hint("What the sender signs with, from the settings of the sender.").render())
            (Field::new("tags", Kind::Commas).hint("Tags of the events, separated by commas.").render())
            details {
                summary { "Other settings, and senders that are not in the list" }
                (select("verify.scheme", SCHEMES, "", "How the sender proves who it is, unless the provider says so."))
                (Field::new("verify.header", Kind::Text).hint("The header with the signature, for the schemes hmac and token.").render())
                @for (name, hint) in OBJECTS.iter().filter(|(name, _)| *name != "verify") { (object_field_of_new(name, hint)) }
            }
            (buttons("Create"))
        }
    };
    Ok(respond(&request, &viewer, Section::Sources, "New source", content))
}

fn object_field_of_new(name: &str, hint: &str) -> Markup {
    Field::new(name, Kind::Json).hint(hint).render()
}

const SCHEMES: &[(&str, &str)] = &[
    ("", "as the provider does"),
    ("standard", "standard"),
    ("github", "github"),
    ("stripe", "stripe"),
    ("slack", "slack"),
    ("shopify", "shopify"),
    ("hmac", "hmac"),
    ("token", "token"),
    ("none", "none: whoever knows the address may send"),
];

fn known_provider(name: &str) -> Option<&'static str> {
    PROVIDERS.into_iter().find(|known| *known == name)
}

fn providers() -> Vec<(&'static str, &'static str)> {
    std::iter::once(("", "another one")).chain(PROVIDERS.map(|name| (name, name))).collect()
}
