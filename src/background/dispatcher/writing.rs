//! A claimed push is made into a request, on a thread that may take its time if it has to.

use chrono::Utc;
use tokio::sync::Semaphore;

use crate::domain::signature::Secret;
use crate::domain::subscription::SubscriptionSpec;
use crate::domain::transform::Transform;
use crate::engine::operate::replays::Replay;
use crate::engine::push::ClaimedPush;
use crate::webhook::{OutboundMessage, WebhookRequest};

/// Payloads from this size on are not transformed in passing, and by a template none are.
const LARGE_PAYLOAD: usize = 16 * 1024;

/// Transforms under way at once that may take their time: the threads on which they run are also
/// those that look names up.
const LONG_TRANSFORMS: usize = 8;

static PLACES_FOR_LONG: Semaphore = Semaphore::const_new(LONG_TRANSFORMS);

/// Writes the request; off the threads that serve everybody, if a transform may take its time.
pub(super) async fn write(
    letter: OutboundMessage,
    spec: &SubscriptionSpec,
    secrets: Vec<Secret>,
) -> Result<WebhookRequest, String> {
    let timestamp = Utc::now().timestamp();
    let may_be_long = |transform: &Transform| transform.has_template() || letter.payload.len() >= LARGE_PAYLOAD;
    if !spec.transform.as_ref().is_some_and(may_be_long) {
        return letter.into_request(spec, &secrets, timestamp);
    }
    let _place = PLACES_FOR_LONG.acquire().await.map_err(|closed| closed.to_string())?;
    let spec = spec.clone();
    let writing = tokio::task::spawn_blocking(move || letter.into_request(&spec, &secrets, timestamp));
    writing.await.unwrap_or_else(|panic| Err(panic.to_string()))
}

/// A claimed push, as it is to be sent.
pub(super) fn letter_of(push: &ClaimedPush, replay: &Replay, epoch: &str) -> OutboundMessage {
    let event = &push.row.event;
    let own_payload = || event.payload.as_ref().map_or("null", |json| json.0.as_str()).to_owned();
    OutboundMessage {
        webhook_id: replay.webhook_id.clone().unwrap_or_else(|| OutboundMessage::webhook_id(epoch, event.id)),
        event_type: event.event_type.clone(),
        title: event.title.clone(),
        time: event.created_at,
        tags: event.tags.clone(),
        labels: event.labels.as_ref().and_then(|json| serde_json::from_str(json.0.as_str()).ok()).unwrap_or_default(),
        payload: replay.payload.as_ref().map_or_else(own_payload, |json| json.as_str().to_owned()),
        correlation_id: event.correlation_id.clone(),
        ordering_key: event.ordering_key.clone(),
        traceparent: event.traceparent.clone(),
        attempt: push.row.work.retry_count + 1,
    }
}
