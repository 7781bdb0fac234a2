//! What pages share: states, times, links, buttons of actions, and pages of lists.

use chrono::{DateTime, SecondsFormat, Utc};
use maud::{Markup, html};

use super::asking::ReasonIn;
use super::json_text::pretty;
use super::viewer::Viewer;
use crate::domain::ids::{EventId, LeaseId};
use crate::domain::status::Status;
use crate::store::tables::event_columns::WorkColumns;

/// Returns a time. The script shows its age, with the time as a title.
pub(super) fn time(at: DateTime<Utc>) -> Markup {
    html! { time datetime=(at.to_rfc3339_opts(SecondsFormat::Millis, true)) { (at.format("%Y-%m-%d %H:%M:%S")) } }
}

/// Returns a time that stays as it is.
pub(super) fn exact_time(at: DateTime<Utc>) -> Markup {
    let text = at.to_rfc3339_opts(SecondsFormat::Millis, true);
    html! { time datetime=(text) title=(text) data-exact { (at.format("%H:%M:%S%.3f")) } }
}

/// Returns a time of any day that stays as it is.
pub(super) fn exact_date(at: DateTime<Utc>) -> Markup {
    let text = at.to_rfc3339_opts(SecondsFormat::Millis, true);
    html! { time datetime=(text) title=(text) data-exact { (at.format("%Y-%m-%d %H:%M:%S")) } }
}

/// Returns a number with its thousands apart, and a plus if there may be more.
pub(super) fn count(number: i64, is_exact: bool) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if !is_exact {
        text.push('+');
    }
    text
}

/// Returns the state of an event: its status, or what it waits for.
pub(super) fn state(work: &WorkColumns) -> Markup {
    let status = work.status.0;
    let is_retry = status == Status::Pending && work.lease_id > LeaseId::NONE && work.due_at.is_some();
    html! {
        @if is_retry {
            span.state.retry { "PENDING, retry " @if let Some(at) = work.due_at { (time(at)) } }
        } @else {
            span class=(format!("state {}", status.as_str())) {
                (status.as_str())
                @if let Some(at) = work.due_at.filter(|_| status == Status::Pending) { " " (time(at)) }
            }
        }
        @if work.cancel_requested && status == Status::Processing { " " span.state.warning { "cancel requested" } }
    }
}

pub(super) fn event_link(viewer: &Viewer, id: EventId) -> Markup {
    html! { a.mono href=(viewer.link(&format!("/ui/events/{id}"))) { (id) } }
}

/// Returns the link to the events of a tag, and of further words of the filter line.
pub(super) fn events_link(viewer: &Viewer, words: &str, text: &str) -> Markup {
    html! { a href=(viewer.link(&filtered(words))) { (text) } }
}

/// Returns the path of the list of events with these words of the filter line.
pub(super) fn filtered(words: &str) -> String {
    format!("/ui/events?q={}", encode(words))
}

/// Encodes a value for a query string.
pub(super) fn encode(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Encodes a value for a segment of a path.
pub(super) fn encode_segment(text: &str) -> String {
    encode(text).replace('+', "%20")
}

/// Returns a JSON document as people read it, cut after `max_bytes`.
pub(super) fn json_block(json: &str, max_bytes: usize) -> Markup {
    let (text, is_whole) = pretty(json, max_bytes);
    html! {
        pre.json tabindex="0" { (text) }
        @if !is_whole { p.muted { "Cut here. The API has all of it." } }
    }
}

/// A button that calls the API, after a question.
pub(super) struct Action<'a> {
    pub label: &'a str,
    pub method: &'a str,
    pub path: String,
    pub body: Option<String>,
    pub question: String,
    pub is_danger: bool,
}

impl Action<'_> {
    pub(super) fn button(&self) -> Markup {
        self.render(None, None, false)
    }

    /// Returns a button whose dialog takes a reason, for the parameter `reason` of the request.
    pub(super) fn button_with_reason(&self) -> Markup {
        self.render(Some(ReasonIn::Query), None, false)
    }

    /// Returns a button that leads to another page afterwards, because there is nothing left to see on this one.
    pub(super) fn button_to(&self, next: &str) -> Markup {
        self.render(None, Some(next), false)
    }

    pub(super) fn render(&self, reason: Option<ReasonIn>, next: Option<&str>, shows_answer: bool) -> Markup {
        html! {
            button type="button" class=[self.is_danger.then_some("danger")] data-action data-method=(self.method)
                data-path=(self.path) data-body=[self.body.as_deref()] data-confirm=(self.question) data-next=[next]
                data-reason=[reason.map(ReasonIn::as_str)] data-show=[shows_answer.then_some("")] {
                (self.label)
            }
        }
    }
}

/// Returns the link to the next page of a list, and how far was searched.
pub(super) fn pager(viewer: &Viewer, next: Option<&str>, searched_to: Option<DateTime<Utc>>) -> Markup {
    html! {
        div.pager {
            @if let Some(at) = searched_to { span.muted { "searched back to " (exact_date(at)) } }
            @if let Some(next) = next {
                a.button rel="next" href=(with_parameter(&viewer.address, "after", next)) {
                    @if searched_to.is_some() { "Go on" } @else { "Next page" }
                }
            }
        }
    }
}

/// Returns an address with another value of a parameter.
pub(super) fn with_parameter(address: &str, name: &str, value: &str) -> String {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let is_other = |pair: &&str| !pair.is_empty() && pair.split('=').next() != Some(name);
    let mut pairs: Vec<String> = query.split('&').filter(is_other).map(str::to_owned).collect();
    if !value.is_empty() {
        pairs.push(format!("{name}={}", encode(value)));
    }
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

/// Returns what is shown instead of an empty list.
pub(super) fn empty(text: &str, command: Option<&str>) -> Markup {
    html! {
        div.empty {
            p { (text) }
            @if let Some(command) = command { pre tabindex="0" { (command) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (-12_345, "-12,345"), (1_234_567, "1,234,567")]
        {
            assert_eq!(count(number, true), text);
        }
        assert_eq!(count(10_000, false), "10,000+");
    }

    #[test]
    fn a_parameter_is_replaced_in_its_address() {
        assert_eq!(with_parameter("/ui/events", "after", "a b"), "/ui/events?after=a+b");
        assert_eq!(with_parameter("/ui/events?after=1&q=x", "after", "2"), "/ui/events?q=x&after=2");
        assert_eq!(with_parameter("/ui/events?after=1", "after", ""), "/ui/events");
    }
}
