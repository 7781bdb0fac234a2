//! `POST /subscriptions/check`: whether a subscription would match an event, and what it would send, before there is one.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::body::read_json_without_query;
use super::doors::Admitted;
use super::redaction::redaction_for;
use super::subscriptions::MAX_SUBSCRIPTION_BYTES;
use crate::domain::ids::EventId;
use crate::domain::input::{InputError, RawFields};
use crate::domain::matching::{Allowance, Mismatch, Stopped, Subject};
use crate::domain::redaction::Redaction;
use crate::domain::scope::Scope;
use crate::domain::subscription::SubscriptionSpec;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::tables::event_columns::EventColumns;
use crate::store::tables::events::get_event;
use crate::webhook::OutboundMessage;

/// The settings that decide what matches and what is sent.
const SETTINGS: [&str; 5] = ["event_types", "tags", "labels", "filter", "transform"];

/// The URL of a subscription that is never stored.
const NOWHERE: &str = "http://localhost/";

/// What a subscription would do with an event.
#[derive(Serialize)]
struct CheckView {
    event_id: EventId,
    matches: bool,
    /// The setting that the event does not satisfy.
    reason: Option<&'static str>,
    content_type: Option<String>,
    body: Option<String>,
    /// Why no body can be made of this event.
    body_error: Option<String>,
    /// Whether parts of the payload were hidden from the caller, and so from the filter and the transform.
    redacted: bool,
    /// The fields that the caller may not see. Omitted if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden: Option<&'static [&'static str]>,
}

/// `POST /subscriptions/check`: matches an event that exists with the settings in the body, and makes the body of a
/// request from it. Nothing is stored, and nothing is sent.
pub(crate) async fn check_subscription(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, MAX_SUBSCRIPTION_BYTES).await?;
    let (event_id, spec) = read_check(&body)?;
    let redaction = redaction_for(&engine, &scope, admitted.principal()).await?;
    let mut conn = engine.database().connection().await?;
    let event = get_event(&mut conn, &scope, event_id).await?.ok_or(Error::EventNotFound(event_id))?.event;
    drop(conn);
    let epoch = engine.epoch_of(event_id).await?;
    let (message, redacted) = message_of(event, &redaction, &epoch);
    let checked = engine.in_check_slot(move |is_cancelled| {
        let mut allowance = Allowance::unlimited().until(is_cancelled);
        check(&message, &spec, &mut allowance)
    });
    let view = checked.await?.map_err(|Stopped| Error::Overloaded)?;
    Ok(HttpResponse::Ok().json(CheckView { event_id, redacted, ..view }.for_reader(admitted.principal().may_reveal())))
}

fn read_check(body: &[u8]) -> Result<(EventId, SubscriptionSpec), InputError> {
    let mut fields = RawFields::of_body(body)?;
    let event_id = fields.required("event_id", RawFields::id);
    let mut settings = fields.rest();
    for name in settings.keys().filter(|name| !SETTINGS.contains(&name.as_str())) {
        fields.refuse(name, "is not known here");
    }
    settings.retain(|name, _| SETTINGS.contains(&name.as_str()));
    settings.insert("url".into(), NOWHERE.into());
    let spec = SubscriptionSpec::parse(&settings).map_err(|errors| fields.refuse_all(InputError::Invalid(errors))).ok();
    fields.finish_with(event_id.zip(spec))
}

/// Returns the message of an event without what is redacted, and whether something is.
///
/// The filter sees no more than the caller: it would tell whether a guess about a hidden value is right.
fn message_of(event: EventColumns, redaction: &Redaction, epoch: &str) -> (OutboundMessage, bool) {
    let payload = event.payload.as_ref().map(|json| &json.0);
    let shown = payload.and_then(|json| redaction.redact("payload", json));
    let redacted = shown.is_some();
    let payload = shown.as_ref().or(payload).map_or("null", |json| json.as_str()).to_owned();
    let labels = event.labels.as_ref().and_then(|json| serde_json::from_str(json.0.as_str()).ok());
    let message = OutboundMessage {
        webhook_id: OutboundMessage::webhook_id(epoch, event.id),
        event_id: Some(event.id),
        event_type: event.event_type,
        title: event.title,
        created_at: event.created_at,
        tags: event.tags.0,
        labels: labels.unwrap_or_default(),
        payload,
        correlation_id: event.correlation_id,
        ordering_key: event.ordering_key,
        traceparent: event.traceparent,
        attempt: 1,
    };
    (message, redacted)
}

fn check(
    message: &OutboundMessage,
    spec: &SubscriptionSpec,
    allowance: &mut Allowance<'_>,
) -> Result<CheckView, Stopped> {
    let OutboundMessage { event_type, tags, labels, payload, created_at, .. } = message;
    let subject = Subject::new(event_type.as_deref(), tags, labels, Some(payload), *created_at);
    let mismatch = Mismatch::find(spec, &subject, allowance)?;
    let (content_type, body, body_error) = match message.preview(spec.transform.as_ref()) {
        Ok((content_type, body)) => (Some(content_type), Some(String::from_utf8_lossy(&body).into_owned()), None),
        Err(reason) => (None, None, Some(reason)),
    };
    Ok(CheckView {
        event_id: EventId(0),
        matches: mismatch.is_none(),
        reason: mismatch.map(Mismatch::as_str),
        content_type,
        body,
        body_error,
        redacted: false,
        hidden: None,
    })
}

impl CheckView {
    /// Hides what only callers with the scope `reveal` may see, unless this one has it.
    fn for_reader(mut self, may_reveal: bool) -> Self {
        if !may_reveal {
            (self.body, self.body_error) = (None, None);
            self.hidden = Some(&["body", "body_error"]);
        }
        self
    }
}
