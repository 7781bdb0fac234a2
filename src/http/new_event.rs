//! Reads events as publishers send them.

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::HttpRequest;

use crate::domain::backoff::Backoff;
use crate::domain::event::{NewEvent, RunAt};
use crate::domain::event_pattern::{SYSTEM_PREFIX, is_system};
use crate::domain::idempotency::{IdempotencyKey, KeyOrigin};
use crate::domain::input::{RawFields, check_label, shown};
use crate::domain::limits;
use crate::domain::scope::Scope;
use crate::domain::seconds::Seconds;
use crate::domain::text;
use crate::domain::trace_context::TraceContext;

/// What the request itself tells about its publisher, besides the body.
pub(crate) struct Publisher {
    traceparent: Option<String>,
    name: Option<Arc<str>>,
    address: Option<IpAddr>,
}

impl Publisher {
    pub(crate) fn of(request: &HttpRequest, scope: &Scope) -> Self {
        Publisher { traceparent: traceparent(request), name: scope.actor.clone(), address: scope.address }
    }

    /// Notes on an event where it comes from.
    pub(crate) fn sign(&self, event: &mut NewEvent) {
        event.traceparent.clone_from(&self.traceparent);
        event.published_by.clone_from(&self.name);
        event.client_address = self.address;
    }
}

/// Reads one event. Errors are collected in `fields`.
#[expect(clippy::unnecessary_wraps, reason = "readers of batch items return options")]
pub(crate) fn read_event(fields: &mut RawFields<'_>, publisher: &Publisher) -> Option<NewEvent> {
    let title = fields.text("title", limits::TITLE_CHARS);
    let event_type = fields.text("event_type", limits::NAME_CHARS);
    let tags = fields.tags("tags").unwrap_or_default();
    let key = read_key(fields);
    let mut event = NewEvent {
        title: title.or_else(|| event_type.clone()).unwrap_or_default(),
        description: fields.text_or_empty("description", limits::DESCRIPTION_CHARS),
        event_type,
        tags,
        labels: fields.labels("labels").unwrap_or_default(),
        payload: fields.json("payload", limits::PAYLOAD_BYTES),
        priority: fields.integer("priority", limits::PRIORITY).unwrap_or(0),
        max_retries: fields.integer("max_retries", limits::MAX_RETRIES).unwrap_or(limits::DEFAULT_MAX_RETRIES),
        backoff: read_backoff(fields),
        ordering_key: fields.text("ordering_key", limits::NAME_CHARS),
        correlation_id: fields.text("correlation_id", limits::NAME_CHARS),
        run_at: read_run_at(fields),
        expires_at: fields.timestamp("expires_at"),
        ..NewEvent::titled(String::new())
    };
    publisher.sign(&mut event);
    event.idempotency_key = key.map(|key| IdempotencyKey::of(KeyOrigin::Publishers, key, &event));
    check_combinations(fields, &event);
    Some(event)
}

/// Reads the idempotency key of an event, which may have either name.
fn read_key(fields: &mut RawFields<'_>) -> Option<String> {
    let key = fields.text("idempotency_key", limits::NAME_CHARS);
    let id = fields.text("event_id", limits::NAME_CHARS);
    if let (Some(key), Some(id)) = (&key, &id)
        && key != id
    {
        fields.refuse("event_id", "must be the same as idempotency_key, or be left out");
    }
    key.or(id)
}

/// Checks an event that was not read from fields of these names.
pub(crate) fn check_event(fields: &mut RawFields<'_>, event: &NewEvent) {
    let texts = [("event_type", &event.event_type), ("ordering_key", &event.ordering_key)];
    for (name, value) in texts {
        if let Some(Err(reason)) = value.as_ref().map(|value| text::check(value, limits::NAME_CHARS)) {
            fields.refuse(name, reason);
        }
    }
    if event.labels.len() > limits::LABELS {
        fields.refuse("labels", format!("must be at most {} pairs", limits::LABELS));
    }
    for (name, value) in &event.labels {
        if let Err(reason) = check_label(name, Some(value.clone())) {
            fields.refuse(shown(name), reason);
        }
    }
    check_combinations(fields, event);
}

/// Checks the rules that concern more than one field.
fn check_combinations(fields: &mut RawFields<'_>, event: &NewEvent) {
    if fields.has_errors() {
        return;
    }
    if event.tags.is_empty() && event.event_type.is_none() {
        fields.refuse("tags", "is required, unless there is an event_type");
    }
    if event.title.is_empty() {
        fields.refuse("title", "is required, unless there is an event_type");
    } else if event.title.chars().count() > limits::TITLE_CHARS {
        fields.refuse("title", format!("must be at most {} characters long", limits::TITLE_CHARS));
    }
    if is_system(event.event_type.as_deref()) {
        fields
            .refuse("event_type", format!("must not begin with {SYSTEM_PREFIX}, which is for the server's own events"));
    }
    if let (RunAt::At(run_at), Some(expires_at)) = (event.run_at, event.expires_at)
        && expires_at <= run_at
    {
        fields.refuse("expires_at", "must be after run_at");
    }
}

fn read_run_at(fields: &mut RawFields<'_>) -> RunAt {
    let at = fields.timestamp("run_at");
    let after = fields.seconds("delay_seconds", Seconds::MAX_DELAY);
    match (at, after) {
        (Some(_), Some(_)) => {
            fields.refuse("delay_seconds", "must not be given together with run_at");
            RunAt::Now
        }
        (Some(time), None) => RunAt::At(time),
        (None, Some(seconds)) if seconds > Seconds::ZERO => RunAt::After(seconds),
        (None, _) => RunAt::Now,
    }
}

fn read_backoff(fields: &mut RawFields<'_>) -> Option<Backoff> {
    const EXPECTED: &str =
        "an object with a strategy (fixed, exponential or schedule) and its numbers, and nothing else";
    let backoff: Backoff = fields.value("backoff", EXPECTED)?;
    if let Err(invalid) = backoff.check() {
        fields.refuse_inside("backoff", invalid);
        return None;
    }
    Some(backoff)
}

/// Returns the W3C `traceparent` of a request. According to the standard, a malformed header is
/// ignored and not an error.
pub(crate) fn traceparent(request: &HttpRequest) -> Option<String> {
    let value = request.headers().get("traceparent")?.to_str().ok()?;
    is_traceparent(value).then(|| value.to_owned())
}

/// Returns whether a text is a W3C `traceparent`.
pub(crate) fn is_traceparent(value: &str) -> bool {
    TraceContext::parse(value).is_some()
}
