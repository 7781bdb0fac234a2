//! Attempts of pushes in the life of an event.

use chrono::TimeDelta;
use maud::{Markup, html};

use super::moments::length;
use super::parts::exact_time;
use super::push_parts::{held, subscription_name};
use super::timeline::{Drawing, state_of};
use crate::domain::action::Action;
use crate::domain::address::masked;
use crate::domain::ids::DeliveryId;
use crate::store::lists::pushes::PushRow;
use crate::store::tables::event_log::LogEntry;

/// Returns what happened to a push: an attempt with its answer, or what an operator did.
pub(super) fn push_moment(drawing: &Drawing<'_>, entry: &LogEntry) -> Markup {
    let Some(id) = entry.delivery_id else { return html! {} };
    let push = drawing.life.pushes.iter().find(|push| push.id == id);
    let action = entry.action.0;
    html! {
        span class=(format!("state {}", state_of(action))) { (word(action)) }
        (names(drawing, id, push))
        @if let Some(actor) = &entry.actor { " by " strong { (actor) } }
        @if let Some(code) = entry.status_code { " · HTTP " (code) }
        @if let Some(kind) = &entry.error_kind { " · " (kind) }
        @if let Some(milliseconds) = entry.execution_time_ms { " · " (length(TimeDelta::milliseconds(milliseconds))) }
        span.muted { " · attempt " (entry.attempt) }
        @if let Some(reason) = &entry.reason { p { (reason) } }
        (drawing.error(entry))
        @if let Some(at) = entry.next_retry_at {
            p.muted {
                @if at > drawing.now { "↻ waits " (length(at - entry.created_at)) " until " (exact_time(at)) }
                @else { "↻ due " (length(at - entry.created_at)) " later, at " (exact_time(at)) }
            }
        }
        @if is_attempt(entry) { (exchange(drawing, entry, push)) }
    }
}

/// Returns what keeps a push from being sent, if anything does.
pub(super) fn held_moment(drawing: &Drawing<'_>, push: &PushRow) -> Option<Markup> {
    let held = held(push, &drawing.life.push_context)?;
    Some(html! { (held) (names(drawing, push.id, Some(push))) })
}

/// Returns the word for what happened. A push that was picked and has no outcome yet is being sent.
fn word(action: Action) -> &'static str {
    match action {
        Action::Picked => "push being sent",
        Action::Completed => "push COMPLETED",
        Action::Failed => "push FAILED",
        other => other.as_str(),
    }
}

fn is_attempt(entry: &LogEntry) -> bool {
    matches!(entry.action.0, Action::Completed | Action::Failed) && entry.worker_id.is_some()
}

fn names(drawing: &Drawing<'_>, id: DeliveryId, push: Option<&PushRow>) -> Markup {
    let link = |path: String| drawing.viewer.link(&path);
    html! {
        " delivery " a.mono href=(link(format!("/ui/deliveries/{id}"))) { (id) }
        @if let Some(push) = push {
            " to " (subscription_name(drawing.viewer, push.subscription_id, &drawing.life.push_context))
        }
    }
}

/// Returns what was sent and answered, as far as it is known.
fn exchange(drawing: &Drawing<'_>, entry: &LogEntry, push: Option<&PushRow>) -> Markup {
    let excerpt = entry.response_excerpt.as_deref().filter(|_| drawing.viewer.may_reveal());
    // A replay may have a `webhook-id` of its own.
    let webhook_id = drawing.webhook_id.as_ref().filter(|_| push.is_some_and(|push| push.replay_of.is_none()));
    html! {
        details id=(format!("exchange-{}", entry.id)) {
            summary { "request and answer" }
            dl.facts {
                dt { "request" } dd.mono { (address(drawing, entry, push)) }
                @if let Some(id) = webhook_id { dt { "webhook-id" } dd.mono { (id) } }
                @if let Some(version) = entry.subscription_version { dt { "subscription_version" } dd { (version) } }
                @if let Some(kind) = &entry.error_kind { dt { "error_kind" } dd { (kind) } }
                dt { "answer" }
                dd {
                    @if let Some(code) = entry.status_code { "HTTP " (code) } @else { "none" }
                }
            }
            @if let Some(excerpt) = excerpt { pre.text tabindex="0" { (excerpt) } }
        }
    }
}

/// Returns the method and where an attempt was sent, masked, if the subscription has not changed since.
fn address(drawing: &Drawing<'_>, entry: &LogEntry, push: Option<&PushRow>) -> String {
    let known = push.and_then(|push| drawing.life.push_context.subscription(push.subscription_id));
    match known.filter(|address| Some(address.version) == entry.subscription_version) {
        Some(address) => format!("{} {}", address.method.as_deref().unwrap_or("POST"), masked(&address.url)),
        None => "(the subscription has changed since)".to_owned(),
    }
}
