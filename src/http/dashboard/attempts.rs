//! Attempts to send a push: their outcome, their latency, and the beginning of the response.

use maud::{Markup, html};

use super::parts::{event_link, exact_time, time};
use super::push_parts::delivery_link;
use super::viewer::Viewer;
use crate::http::deliveries::AttemptView;
use crate::store::tables::event_log::LogEntry;

/// Returns a table of attempts. With `names_push`, each row says which push it was for.
pub(super) fn attempts_table(viewer: &Viewer, entries: &[LogEntry], names_push: bool) -> Markup {
    html! {
        div.table {
            table.rows data-rows {
                thead {
                    tr {
                        th { "Outcome" }
                        @if names_push { th { "Delivery" } th.roomy { "Event" } }
                        th.number { "Attempt" } th.number { "Duration" } th { "Response" }
                        @if !names_push { th.roomy { "Next attempt" } }
                        th.right { "Started" }
                    }
                }
                tbody { @for entry in entries { (attempt_row(viewer, entry, names_push)) } }
            }
        }
    }
}

fn attempt_row(viewer: &Viewer, entry: &LogEntry, names_push: bool) -> Markup {
    let mut attempt = AttemptView::of(entry);
    if !viewer.may_reveal() {
        attempt.hide();
    }
    html! {
        tr data-id=(entry.id) {
            td.nowrap { (outcome(&attempt)) }
            @if names_push {
                td { @if let Some(id) = entry.delivery_id { (delivery_link(viewer, id)) } }
                td.optional.roomy { (event_link(viewer, entry.event_id)) }
            }
            td.number { span.only-phone { "attempt " } (attempt.attempt) }
            td.number.nowrap { @if let Some(ms) = attempt.duration_ms { (ms) " ms" } }
            td.answer { (answer(&attempt)) }
            @if !names_push { td.nowrap.optional.roomy { @if let Some(at) = &attempt.next_attempt_at { (time(at.0)) } } }
            td.right.nowrap { (exact_time(attempt.started_at.0)) }
        }
    }
}

/// Returns how an attempt ended: the status of the response, or why there was none.
fn outcome(attempt: &AttemptView<'_>) -> Markup {
    let is_success = attempt.status_code.is_some_and(|code| (200..300).contains(&code));
    html! {
        span class=(if is_success { "state good" } else { "state bad" }) {
            @match (attempt.status_code, attempt.error_kind) {
                (Some(code), _) => (code),
                (None, Some(kind)) => (kind),
                (None, None) => "no response",
            }
        }
    }
}

/// Returns what is known about the response, folded if it is long.
fn answer(attempt: &AttemptView<'_>) -> Markup {
    let excerpt = attempt.response_excerpt.filter(|excerpt| !excerpt.is_empty());
    html! {
        @if attempt.hidden.is_some() { span.muted { "hidden: the key has no scope reveal" } }
        @match (attempt.error_message, excerpt) {
            (message, Some(excerpt)) => (folded(message.unwrap_or("response"), excerpt)),
            (Some(message), None) => (message),
            (None, None) => {}
        }
    }
}

/// Returns the excerpt of a response below what it means.
pub(super) fn folded(meaning: &str, excerpt: &str) -> Markup {
    html! { details { summary { (meaning) } pre.text tabindex="0" { (excerpt) } } }
}
