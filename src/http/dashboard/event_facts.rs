//! The facts about an event, with links along what it has in common with others.

use chrono::{DateTime, SecondsFormat, Utc};
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::filter_line::{text_word, word};
use super::parts::{count, event_link, events_link, time};
use super::viewer::Viewer;
use crate::domain::json::RawJson;
use crate::domain::limits;
use crate::domain::status::Status;
use crate::store::lists::event_life::EventLife;
use crate::store::lists::related_events::MOST_RELATED;

/// Returns the facts.
pub(super) fn facts(viewer: &Viewer, life: &EventLife) -> Markup {
    let (event, work) = (&life.details.row.event, &life.details.row.work);
    let words = |name: &str, value: &str| events_link(viewer, &word(&format!("{name}:"), value), value);
    html! {
        dl.facts {
            dt { "id" } dd.mono { (event.id) }
            @if !event.tags.0.is_empty() {
                dt { "tags" } dd { @for tag in &event.tags.0 { (words("tag", tag)) " " } }
            }
            @if let Some(event_type) = &event.event_type { dt { "event_type" } dd { (words("type", event_type)) } }
            @if let Some(labels) = &event.labels { dt { "labels" } dd { (label_chips(viewer, &labels.0)) } }
            // What is only pushed is not attempted itself: its deliveries are.
            @if !event.tags.0.is_empty() {
                dt title="retry_count and max_retries" { "attempts" } dd { (attempts(life)) }
            }
            @if let Some(line) = siblings(viewer, life) { dt { "siblings" } dd { (events_link(viewer, &line, "failed events like this one")) } }
            dt { "priority" } dd { (event.priority) }
            (moment("created_at", Some(event.created_at)))
            (moment("run_at", event.run_at))
            (moment("expires_at", event.expires_at))
            @if let Some(worker) = &work.worker_id { dt { "worker_id" } dd.mono { (words("worker", worker)) } }
            (moment("lease_expires_at", work.lease_expires_at))
            @if let Some(id) = &event.correlation_id {
                dt { "correlation_id" }
                dd { (words("correlation", id)) span.muted { " " (number(life.related.correlated, "event")) } }
            }
            @if let Some(key) = &event.ordering_key {
                dt { "ordering_key" }
                dd { (words("key", key)) " " (ahead(viewer, life)) }
            }
            @if let Some(backoff) = &life.backoff { dt { "backoff" } dd.mono { (backoff.0.as_str()) } }
            @if let Some(trace) = &event.traceparent { dt { "traceparent" } dd.mono { (trace) } }
            @if let Some(reason) = &life.details.cancel_reason { dt { "cancel_reason" } dd { (reason) } }
            (origin(viewer, life))
            @if !life.pushes.is_empty() || event.event_type.is_some() {
                dt { "deliveries" }
                dd { a href=(viewer.link(&format!("/ui/deliveries?event_id={}", event.id))) { "deliveries of this event" } }
            }
        }
    }
}

/// Returns where the event came from, which only operators see.
fn origin(viewer: &Viewer, life: &EventLife) -> Markup {
    let origin = &life.details.origin;
    html! {
        @if viewer.may_operate() {
            @if let Some(name) = &origin.published_by { dt { "published_by" } dd { (name) } }
            @if let Some(address) = &origin.client_address { dt { "client_address" } dd.mono { (address) } }
            @if let Some(key) = &origin.idempotency_key { dt { "idempotency_key" } dd.mono { (key) } }
        }
    }
}

fn moment(name: &str, at: Option<DateTime<Utc>>) -> Markup {
    let Some(at) = at else { return html! {} };
    let text = at.to_rfc3339_opts(SecondsFormat::Millis, true);
    html! {
        dt { (name) }
        dd {
            time datetime=(text) title=(text) data-exact { (at.format("%Y-%m-%d %H:%M:%S")) }
            span.muted { " (" (time(at)) ")" }
        }
    }
}

/// Returns how many attempts have failed, of how many. The attempt that fails last makes the event FAILED.
fn attempts(life: &EventLife) -> Markup {
    let (failed, most) = (life.details.row.work.retry_count, life.details.row.event.max_retries);
    html! {
        (failed) " of " (most) " failed"
        @if life.details.row.work.status.0 == Status::Processing { ", attempt " (failed + 1) " runs" }
    }
}

/// The number of words of an error that siblings have in common.
const ERROR_WORDS: usize = 6;

/// Returns the filter line of events that have failed in the same way: with the same tag or type, and with the words with
/// which the error begins.
fn siblings(viewer: &Viewer, life: &EventLife) -> Option<String> {
    let (event, work) = (&life.details.row.event, &life.details.row.work);
    let error = work.last_error.as_deref().filter(|_| viewer.may_reveal()).and_then(common_words);
    let tag = event.tags.0.first().map(|tag| word("tag:", tag));
    let kind = tag.or_else(|| event.event_type.as_ref().map(|event_type| word("type:", event_type)));
    let words = ["status:FAILED".to_owned()].into_iter().chain(kind).chain(error.map(|text| text_word(&text)));
    (work.status.0 == Status::Failed).then(|| words.collect::<Vec<_>>().join(" "))
}

/// Returns the words with which an error begins, up to the first one with a digit: ids, times and addresses differ from
/// one failure to the next.
fn common_words(error: &str) -> Option<String> {
    let has_digit = |word: &str| word.contains(|character: char| character.is_ascii_digit());
    let line = error.lines().next()?.trim_start();
    let end = line.split_whitespace().take(ERROR_WORDS).take_while(|word| !has_digit(word)).last()?;
    // What lies between the words stays as it is, since the text is searched for as it is.
    let end = end.as_ptr() as usize - line.as_ptr() as usize + end.len();
    let text: String = line[..end].chars().take(limits::SEARCH_TEXT_CHARS).collect();
    Some(text)
}

/// Returns which events the event waits for.
fn ahead(viewer: &Viewer, life: &EventLife) -> Markup {
    html! {
        @if let Some(first) = life.related.first_ahead {
            span.state.blocked { (count(life.related.ahead, life.related.ahead < MOST_RELATED)) " ahead" }
            span.muted { @if life.related.ahead == 1 { " event " } @else { " the first is event " } }
            (event_link(viewer, first))
        }
    }
}

fn number(number: i64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number, number < MOST_RELATED))
}

/// Returns labels as links to the events that have them, too.
fn label_chips(viewer: &Viewer, labels: &RawJson) -> Markup {
    let labels: Map<String, Value> = serde_json::from_str(labels.as_str()).unwrap_or_default();
    html! {
        @for (name, value) in &labels {
            @let value = value.as_str().unwrap_or_default();
            span.chip { (events_link(viewer, &word(&format!("label.{name}="), value), &format!("{name}={value}"))) } " "
        }
    }
}

#[cfg(test)]
mod tests {
    use super::common_words;

    #[test]
    fn siblings_share_the_words_before_the_first_number() {
        for (error, words) in [
            ("card declined (402)", Some("card declined")),
            ("timeout  after 3000 ms", Some("timeout  after")),
            ("a b c d e f g h", Some("a b c d e f")),
            ("connection refused\nat line 3", Some("connection refused")),
            ("  é ü 1", Some("é ü")),
            ("E1234 went wrong", None),
            ("", None),
        ] {
            assert_eq!(common_words(error).as_deref(), words, "{error}");
        }
    }
}
