//! One dead letter: what was sent, why it was given up, and its replay.

use actix_web::{HttpRequest, HttpResponse};
use chrono::DateTime;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::attempts::folded;
use super::dead_letters::replay_state;
use super::frame::{Section, respond};
use super::json_text::pretty;
use super::parts::{event_link, exact_time, time};
use super::push_parts::{delivery_link, subscription_link};
use super::viewer::Viewer;
use crate::domain::address::masked;
use crate::error::Error;
use crate::http::body::path_id;
use crate::http::dead_letters::{DeadLetterView, Snapshots};
use crate::http::redaction::redaction_for;
use crate::store::lists::dead_letters::get_dead_letter;

/// The number of bytes of a document that are shown.
const SHOWN_BYTES: usize = 256 * 1024;

/// The number of attempts that are shown. The API has all.
const SHOWN_ATTEMPTS: usize = 100;

/// `GET /ui/dead-letters/{id}`: shows a dead letter.
pub(crate) async fn dead_letter_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    viewer.take_query().finish()?;
    let redaction = redaction_for(&viewer.engine, &viewer.scope, &viewer.principal).await?;
    let mut conn = viewer.engine.database().connection().await?;
    let whole = get_dead_letter(&mut conn, &viewer.scope, id).await?.ok_or(Error::DeadLetterNotFound(id))?;
    drop(conn);
    let letter = DeadLetterView::whole(&whole, &redaction).for_reader(&viewer.principal);
    // A payload with redacted parts would be sent with these words in it, and one that is cut is not whole.
    let may_edit = viewer.may_reveal()
        && redaction.redact_event(&whole.event.0).is_none()
        && whole.event.0.as_str().len() <= SHOWN_BYTES / 4;
    let content = content(&viewer, &letter, may_edit);
    Ok(respond(&request, &viewer, Section::DeadLetters, &format!("Dead letter {id}"), content))
}

fn content(viewer: &Viewer, letter: &DeadLetterView<'_>, may_edit: bool) -> Markup {
    html! {
        div.head {
            span.state.bad { (letter.reason) }
            h1 { "Dead letter " (letter.id) }
            (replay_state(letter))
            @if viewer.may_operate() {
                div.actions {
                    button type="button" data-curl data-method="GET" data-path=(format!("/dead-letters/{}", letter.id)) { "Copy as curl" }
                }
            }
        }
        div.columns {
            section aria-label="What was sent" {
                @if let Some(snapshots) = &letter.snapshots { (sent(viewer, snapshots)) }
            }
            section aria-label="Facts" {
                h2 { "Facts" }
                (facts(viewer, letter))
                @if viewer.may_operate() && letter.replay.is_none() { (replay_form(letter.id, may_edit)) }
            }
        }
    }
}

fn facts(viewer: &Viewer, letter: &DeadLetterView<'_>) -> Markup {
    html! {
        dl.facts {
            dt { "reason" } dd { (letter.reason) }
            @if let Some(detail) = letter.detail { dt { "detail" } dd { (detail) } }
            @if letter.hidden.is_some() { dt { "detail" } dd.muted { "hidden: the key has no scope reveal" } }
            @if let Some(actor) = letter.actor { dt { "actor" } dd { (actor) } }
            dt { "event_id" } dd { (event_link(viewer, letter.event_id)) }
            dt { "delivery_id" } dd { (delivery_link(viewer, letter.delivery_id)) }
            dt { "subscription_id" } dd { (subscription_link(viewer, letter.subscription_id)) " version " (letter.subscription_version) }
            dt { "created_at" } dd { (exact_time(letter.created_at.0)) " (" (time(letter.created_at.0)) ")" }
            @if let Some(replay) = &letter.replay {
                dt { "replayed_at" } dd { (exact_time(replay.replayed_at.0)) " (" (time(replay.replayed_at.0)) ")" }
                @if let Some(actor) = replay.actor { dt { "replayed by" } dd { (actor) } }
                @if let Some(config) = replay.config { dt { "config" } dd { (config) } }
                @if let Some(reason) = replay.reason { dt { "replay reason" } dd { (reason) } }
            }
        }
    }
}

/// Returns the attempts, the payload and the settings of then.
fn sent(viewer: &Viewer, snapshots: &Snapshots<'_>) -> Markup {
    let attempts: Vec<Map<String, Value>> = serde_json::from_str(snapshots.attempts.as_str()).unwrap_or_default();
    let url = snapshots.subscription.get("url").and_then(Value::as_str).map(masked);
    let mut settings = snapshots.subscription.clone();
    if let Some(url) = &url {
        settings.insert("url".into(), url.as_str().into());
    }
    html! {
        h2 { "Attempts" }
        @if let Some(url) = &url { p.mono { (url) } }
        (attempts_of_then(&attempts))
        h2 { "Payload" }
        @if viewer.may_reveal() {
            @if let Some(payload) = payload_of(snapshots) { (document("payload-of-then", payload, true)) } @else { p.muted { "none" } }
        } @else { p.muted { "Hidden: the key has no scope reveal." } }
        h2 { "Event" }
        (document("event", snapshots.event.as_str(), false))
        h2 { "Settings of then" }
        (document("settings", &Value::Object(settings).to_string(), false))
    }
}

/// Returns the payload of then, with the spelling of its numbers.
fn payload_of<'a>(snapshots: &'a Snapshots<'_>) -> Option<&'a str> {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow)]
        payload: Option<&'a RawValue>,
    }
    let event: Event<'_> = serde_json::from_str(snapshots.event.as_str()).ok()?;
    event.payload.map(RawValue::get)
}

fn attempts_of_then(attempts: &[Map<String, Value>]) -> Markup {
    let text = |attempt: &Map<String, Value>, name: &str| match attempt.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    html! {
        div.table {
            table.rows {
                thead { tr { th.number { "Attempt" } th { "Outcome" } th.number { "Duration" } th { "Response" } th.right { "Started" } } }
                tbody {
                    @for attempt in attempts.iter().rev().take(SHOWN_ATTEMPTS) {
                        @let (status, kind) = (text(attempt, "status_code"), text(attempt, "error_kind"));
                        @let (message, excerpt) = (text(attempt, "error_message"), text(attempt, "response_excerpt"));
                        tr {
                            td.number { span.only-phone { "attempt " } (text(attempt, "attempt")) }
                            td.nowrap { span.state.bad { @if status.is_empty() { (kind) } @else { (status) } } }
                            td.number.nowrap { (text(attempt, "duration_ms")) " ms" }
                            td.answer {
                                @if excerpt.is_empty() { (message) } @else { (folded(&message, &excerpt)) }
                            }
                            td.right.nowrap {
                                @if let Ok(at) = DateTime::parse_from_rfc3339(&text(attempt, "started_at")) { (exact_time(at.to_utc())) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn document(id: &str, json: &str, is_open: bool) -> Markup {
    let (text, is_whole) = pretty(json, SHOWN_BYTES);
    html! {
        details open[is_open] {
            summary { (json.len()) " bytes " }
            button type="button" data-copy=(id) { "Copy" }
            pre.json #(id) tabindex="0" { (text) }
            @if !is_whole { p.muted { "Cut here. The API has all of it." } }
        }
    }
}

/// Returns the form that replays a dead letter, as it was or with another payload.
fn replay_form(id: i64, may_edit: bool) -> Markup {
    html! {
        h2 { "Replay" }
        form data-form data-path=(format!("/dead-letters/{id}/replay")) data-next=(format!("/ui/dead-letters/{id}")) {
            label for="reason" { "reason" }
            input #reason type="text" name="reason" autocomplete="off";
            p.error data-error-of="reason" {}
            label for="config" { "config" }
            select #config name="config" {
                option value="current" { "current: the settings of now" }
                option value="original" { "original: the settings of then" }
            }
            label.inline { input type="checkbox" name="new_webhook_id"; " new_webhook_id: receivers do not take it for a repetition" }
            label for="payload" { "payload" }
            textarea #payload name="payload" rows="4" spellcheck="false" data-kind="json" aria-describedby="payload-hint" {}
            p.hint #payload-hint { "Empty: the payload as it was." }
            p.error data-error-of="payload" {}
            div.actions {
                button.primary { "Replay" }
                @if may_edit { button type="button" data-fill="payload" data-from="payload-of-then" { "Edit the payload" } }
                button type="button" data-form-curl { "Copy as curl" }
            }
        }
    }
}
