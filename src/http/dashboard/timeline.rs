//! The life of an event, drawn as a list of moments with time running down. A claim is a bar: what was held of its lease,
//! to scale.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use maud::{Markup, html};

use super::filter_line::word;
use super::moments::{Claim, Kind, Moment, Wait, length, moments};
use super::parts::{count, events_link, exact_time, time};
use super::push_moment::{held_moment, push_moment};
use super::viewer::Viewer;
use crate::domain::action::Action;
use crate::domain::redaction::Redaction;
use crate::store::lists::event_life::{EventLife, MOST_EARLIER};
use crate::store::tables::event_log::LogEntry;
use crate::store::tables::refused_settlements::RefusedSettlement;

/// The width of a lease in the drawing, or of a claim that was longer.
const WIDTH: f64 = 360.0;
/// The least width of what was held, so that a short claim is visible.
const LEAST_WIDTH: f64 = 2.0;
/// The time within which servers reset an event whose lease has expired, if they keep up.
const SOON: TimeDelta = TimeDelta::seconds(10);
/// The number of characters of a text that are shown before it is opened.
const SHORT_TEXT: usize = 300;
/// The number of bytes of errors and answers that a page shows, of the latest ones. Of others it shows the beginning.
const TEXT_BYTES: usize = 512 * 1024;

/// What the drawing of a life needs to know.
pub(super) struct Drawing<'a> {
    pub viewer: &'a Viewer,
    pub life: &'a EventLife,
    pub redaction: &'a Redaction,
    /// The `webhook-id` of the event's pushes, if there are any.
    pub webhook_id: Option<String>,
    pub now: DateTime<Utc>,
}

impl Drawing<'_> {
    /// Returns the life of the event.
    pub(super) fn timeline(&self) -> Markup {
        let moments = moments(self.life, self.now);
        let mut day = None;
        html! {
            ol.timeline {
                @for (at, moment) in moments.iter().enumerate() {
                    (day_of(moment, &mut day))
                    (self.moment(moment))
                    @if at == 0 { (self.earlier()) }
                }
            }
        }
    }

    /// Returns how many entries are not shown.
    fn earlier(&self) -> Markup {
        let (earlier, id) = (self.life.earlier, self.life.details.row.event.id);
        html! {
            @if earlier > 0 {
                li.waits {
                    span.at {}
                    div.what {
                        (count(earlier, earlier < MOST_EARLIER)) " earlier entries: "
                        code { (self.viewer.curl("GET", &format!("/logs?event_id={id}"), None)) }
                    }
                }
            }
        }
    }

    fn moment(&self, moment: &Moment<'_>) -> Markup {
        let (class, body) = match &moment.kind {
            Kind::Published => ("", self.published()),
            Kind::Waited(wait) => return self.waited(wait),
            Kind::Claimed(claim) => ("claimed", self.claimed(claim)),
            Kind::Changed(entry) => (class_of(entry.action.0), self.changed(entry)),
            Kind::Pushed(entry) => (class_of(entry.action.0), push_moment(self, entry)),
            Kind::Refused(refused) => ("refused", refused_settlement(refused)),
            Kind::CancelRequested => ("refused", self.cancel_requested()),
            Kind::Held(push) => match held_moment(self, push) {
                Some(body) => ("refused", body),
                None => return html! {},
            },
        };
        let has_time = !matches!(moment.kind, Kind::CancelRequested | Kind::Held(_));
        html! {
            li class=[(!class.is_empty()).then_some(class)] {
                span.at { @if has_time { (exact_time(moment.at)) } }
                div.what { (body) }
            }
        }
    }

    fn published(&self) -> Markup {
        let origin = &self.life.details.origin;
        // As in the API, where it came from is shown to operators.
        let may_see = self.viewer.may_operate();
        html! {
            span.state.PENDING { "published" }
            @if let Some(by) = origin.published_by.as_ref().filter(|_| may_see) { " by " strong { (by) } }
            @if let Some(address) = origin.client_address.as_ref().filter(|_| may_see) { " from " span.mono { (address) } }
        }
    }

    fn waited(&self, wait: &Wait) -> Markup {
        let shape = if wait.is_retry { "↻ " } else { "" };
        html! {
            li.waits {
                span.at {}
                div.what {
                    @match (wait.until, wait.due_at) {
                        (Some(until), due_at) => {
                            (shape) "waited " (length(until - wait.from))
                            @if let Some(at) = due_at { ", due at " (exact_time(at)) }
                        }
                        (None, Some(at)) if at > self.now => {
                            (shape) "waits " (length(at - wait.from)) " until " (exact_time(at)) " (" (time(at)) ")"
                        }
                        (None, _) => { (shape) "waits since " (exact_time(wait.from)) " (" (time(wait.from)) ")" }
                    }
                }
            }
        }
    }

    fn claimed(&self, claim: &Claim<'_>) -> Markup {
        let entry = claim.entry;
        html! {
            span.state.PROCESSING { "PICKED" }
            (self.by(entry))
            span.muted { " attempt " (entry.attempt) ", lease " (length(claim.lease)) }
            (bar(claim))
            p.muted.small {
                @match claim.lease_expires_at {
                    Some(at) => { "held for " (length(claim.held)) ", lease until " (exact_time(at)) " (" (time(at)) ")" }
                    None if claim.has_expired => (after_expiry(claim)),
                    None => { "held for " (length(claim.held)) @if claim.held > claim.lease { ", heartbeats included" } }
                }
            }
            @if claim.lease_expires_at.is_some() { (self.progress()) }
        }
    }

    /// Returns what the worker last reported, on one line.
    fn progress(&self) -> Markup {
        let progress = self.life.details.row.work.progress.as_ref().filter(|_| self.viewer.may_reveal());
        let Some(progress) = progress else { return html! {} };
        let redacted = self.redaction.redact("progress", &progress.0);
        let text = redacted.as_ref().unwrap_or(&progress.0).as_str();
        html! { p { "progress " code { (short(text)) @if short(text).len() < text.len() { " …" } } } }
    }

    fn changed(&self, entry: &LogEntry) -> Markup {
        let action = entry.action.0;
        html! {
            span class=(format!("state {}", state_of(action))) { (action.as_str()) }
            (self.by(entry))
            @if let Some(code) = entry.status_code { span.muted { " status_code " (code) } }
            @if let Some(milliseconds) = entry.execution_time_ms {
                span.muted { " took " (length(TimeDelta::milliseconds(milliseconds))) }
            }
            @if let Some(reason) = &entry.reason { p { (reason) } }
            (self.error(entry))
        }
    }

    /// Returns who caused an entry: the worker, a key, or a service of the server. The latter two take the event from the
    /// worker.
    fn by(&self, entry: &LogEntry) -> Markup {
        let is_by_worker = entry.actor.is_none() && !matches!(entry.action.0, Action::Reset | Action::Cancelled);
        html! {
            @if let Some(worker) = &entry.worker_id {
                @if is_by_worker { " by " } @else { " from " }
                span.mono { (events_link(self.viewer, &word("worker:", worker), worker)) }
            }
            @if let Some(actor) = &entry.actor { " by " strong { (actor) } }
        }
    }

    fn cancel_requested(&self) -> Markup {
        let details = &self.life.details;
        html! {
            span.state.warning { "cancel requested" }
            @if let Some(actor) = &details.cancel_actor { " by " strong { (actor) } }
            span.muted { " The worker is asked to stop with its next heartbeat." }
            @if let Some(reason) = &details.cancel_reason { p { (reason) } }
        }
    }

    /// Returns the error of an entry: its beginning, and the rest behind a fold.
    pub(super) fn error(&self, entry: &LogEntry) -> Markup {
        let Some(text) = &entry.error_message else { return html! {} };
        html! {
            @if !self.viewer.may_reveal() { p.muted { "Its error is hidden: the key has no scope reveal." } }
            @else { (self.text(entry, "error", text)) }
        }
    }

    /// Returns a text of an entry: its beginning, and the rest behind a fold, if it is one of the latest.
    pub(super) fn text(&self, entry: &LogEntry, name: &str, text: &str) -> Markup {
        let beginning = short(text);
        html! {
            @if beginning.len() == text.len() { p.error-text { (text) } }
            @else if self.shows_all_of(entry) {
                details id=(format!("{name}-{}", entry.id)) { summary { (beginning) " …" } pre.text tabindex="0" { (text) } }
            }
            @else { p.error-text { (beginning) " …" } }
        }
    }

    /// Returns whether the texts of an entry fit on the page with those of all later ones.
    fn shows_all_of(&self, entry: &LogEntry) -> bool {
        let bytes = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let entries = self.life.entries.iter().rev().take_while(|other| other.id >= entry.id);
        entries.map(|entry| bytes(&entry.error_message) + bytes(&entry.response_excerpt)).sum::<usize>() <= TEXT_BYTES
    }
}

/// Returns how long a worker held an event whose lease expired. Heartbeats are not written down: whether there were any
/// is known only if the event was reset as soon as its first lease had expired.
fn after_expiry(claim: &Claim<'_>) -> Markup {
    let later = claim.held - claim.lease;
    html! {
        @if later <= SOON { "lease expired, reset " (length(later)) " later" }
        @else { "held for " (length(claim.held)) ", until its lease had expired" }
    }
}

/// Returns the day of a moment, if it is not that of the moment before.
fn day_of(moment: &Moment<'_>, day: &mut Option<NaiveDate>) -> Markup {
    // Waits and requests to stop show no time.
    if matches!(moment.kind, Kind::Waited(_) | Kind::CancelRequested | Kind::Held(_)) {
        return html! {};
    }
    let date = moment.at.date_naive();
    let is_new = day.replace(date) != Some(date);
    html! { @if is_new { li.day { span.at { (date.format("%Y-%m-%d")) } span.muted.small { "UTC" } } } }
}

fn refused_settlement(row: &RefusedSettlement) -> Markup {
    html! {
        span.state.warning { "refused" }
        @if row.code == "not_claimed" { " " } @else { " late " }
        (noun_of(&row.action)) " by " span.mono { (row.worker_id) }
        " (" a href=(format!("/problems/{}", row.code)) { (row.code) } ")"
        @if let Some(actor) = &row.actor { " with key " strong { (actor) } }
        @if row.calls > 1 {
            span.muted { " " (count(row.calls, true)) " times, the last at " (exact_time(row.last_at)) }
        }
    }
}

/// Returns the beginning of a text: its first line, unless that is long.
fn short(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    line.char_indices().nth(SHORT_TEXT).map_or(line, |(end, _)| &line[..end])
}

/// Returns the noun of a verb of the API.
fn noun_of(verb: &str) -> &str {
    match verb {
        "complete" => "completion",
        "fail" => "failure",
        other => other,
    }
}

fn class_of(action: Action) -> &'static str {
    match action {
        Action::Picked | Action::Started => "claimed",
        Action::Completed => "completed",
        Action::Failed | Action::DeadLettered | Action::Expired => "failed",
        _ => "",
    }
}

pub(super) fn state_of(action: Action) -> &'static str {
    match action {
        Action::Picked | Action::Started => "PROCESSING",
        Action::Completed => "COMPLETED",
        Action::Failed | Action::DeadLettered | Action::Expired => "FAILED",
        Action::Cancelled => "CANCELLED",
        _ => "retry",
    }
}

/// Returns the drawing of a claim: its lease, and how much of it was held. A shared scale would make short leases
/// invisible beside long ones.
fn bar(claim: &Claim<'_>) -> Markup {
    let whole = claim.lease.max(claim.held).num_milliseconds().max(1) as f64;
    let width = |time: TimeDelta| (time.num_milliseconds() as f64 / whole).clamp(0.0, 1.0) * WIDTH;
    let (lease, held) = (width(claim.lease), width(claim.held).max(LEAST_WIDTH));
    let class = match claim.end {
        Some(Action::Failed | Action::Expired) => "used failed",
        Some(Action::Completed) => "used completed",
        Some(_) => "used ended",
        None => "used",
    };
    let text = format!("held for {} of a lease of {}", length(claim.held), length(claim.lease));
    html! {
        svg.lease viewBox=(format!("0 0 {WIDTH} 10")) preserveAspectRatio="none" role="img" aria-label=(text) {
            rect.whole x="0" y="3" width=(format!("{lease:.1}")) height="4" {}
            rect class=(class) x="0" y="0" width=(format!("{held:.1}")) height="10" { title { (text) } }
        }
    }
}
