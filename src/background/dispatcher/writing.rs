//! Builds the request of a claimed push, on a blocking thread if that may take long.

use std::sync::Arc;

use chrono::Utc;
use tokio::sync::Semaphore;

use crate::domain::subscription::{Credentials, SubscriptionSpec};
use crate::domain::transform::Transform;
use crate::engine::operate::replays::Replay;
use crate::engine::push::ClaimedPush;
use crate::webhook::{OutboundMessage, WebhookRequest};

/// Payloads of at least this many bytes are transformed on a blocking thread. With a template, all are.
const LARGE_PAYLOAD: usize = 16 * 1024;

/// The maximum number of concurrent transforms on blocking threads. DNS lookups use the same threads.
const MAX_SLOW_TRANSFORMS: usize = 8;

static SLOW_TRANSFORM_PERMITS: Semaphore = Semaphore::const_new(MAX_SLOW_TRANSFORMS);

/// Builds the request, on a blocking thread if its transform may take long.
pub(super) async fn build_request(
    message: OutboundMessage,
    spec: &SubscriptionSpec,
    credentials: Arc<Credentials>,
) -> Result<WebhookRequest, String> {
    let timestamp = Utc::now().timestamp();
    let may_be_slow = |transform: &Transform| transform.has_template() || message.payload.len() >= LARGE_PAYLOAD;
    if !spec.transform.as_ref().is_some_and(may_be_slow) {
        return message.into_request(spec, &credentials, timestamp);
    }
    let _permit = SLOW_TRANSFORM_PERMITS.acquire().await.map_err(|closed| closed.to_string())?;
    let spec = spec.clone();
    let building = tokio::task::spawn_blocking(move || message.into_request(&spec, &credentials, timestamp));
    building.await.unwrap_or_else(|panic| Err(panic.to_string()))
}

/// Returns the message of a claimed push.
pub(super) fn message_of(push: &ClaimedPush, replay: &Replay, epoch: &str) -> OutboundMessage {
    let event = &push.row.event;
    let own_payload = || event.payload.as_ref().map_or("null", |json| json.0.as_str()).to_owned();
    OutboundMessage {
        webhook_id: replay.webhook_id.clone().unwrap_or_else(|| OutboundMessage::webhook_id(epoch, event.id)),
        event_id: Some(event.id),
        event_type: event.event_type.clone(),
        title: event.title.clone(),
        created_at: event.created_at,
        tags: event.tags.0.clone(),
        labels: event.labels.as_ref().and_then(|json| serde_json::from_str(json.0.as_str()).ok()).unwrap_or_default(),
        payload: replay.payload.as_ref().map_or_else(own_payload, |json| json.as_str().to_owned()),
        correlation_id: event.correlation_id.clone(),
        ordering_key: event.ordering_key.clone(),
        traceparent: event.traceparent.clone(),
        attempt: push.row.work.retry_count + 1,
    }
}
