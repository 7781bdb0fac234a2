//! `/webhooks`: the inbox, which takes a webhook once, however often it is sent.
//!
//! A webhook becomes an event with the tag `inbox`, unless it names others. Its key is found as long as the event exists.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use tokio::time::Instant;

use super::body::{self, path_id, read_json_without_query};
use super::doors::Admitted;
use super::new_event::Publisher;
use super::problem::respond_to_repeatable;
use super::query::{expect_no_query, read_query};
use super::rate_limit::with_rates;
use super::spans::TracedEvents;
use super::view::{Timestamp, timestamp};
use crate::domain::backoff::{Backoff, Jitter};
use crate::domain::event::NewEvent;
use crate::domain::event_pattern::{SYSTEM_PREFIX, is_system};
use crate::domain::idempotency::{IdempotencyKey, KeyOrigin};
use crate::domain::ids::EventId;
use crate::domain::input::{Fields, RawFields};
use crate::domain::limits;
use crate::domain::scope::Scope;
use crate::domain::seconds::Seconds;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::tables::idempotency_keys::{find_events_by_keys, find_key_of_event, find_repeated_events};

/// The tag of a webhook that names none.
const DEFAULT_TAG: &str = "inbox";

/// The number of attempts of a webhook, and the waits between them in seconds.
const ATTEMPTS: i32 = 5;
const BASE_SECONDS: i64 = 5;
const MAX_SECONDS: i64 = 300;

/// A webhook that was received.
#[derive(Serialize)]
struct WebhookView<'a> {
    id: EventId,
    idempotency_key: &'a str,
    status: &'static str,
    created_at: Timestamp,
    /// Left out in the response to its sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
}

/// `POST /webhooks`: receives a webhook. One with a known key changes nothing, whatever its body.
pub(crate) async fn accept_webhook(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, body::MAX_EVENT_BYTES).await?;
    let (key, event) = read_webhook(&body, &Publisher::of(&request, &scope))?;
    admitted.principal().check_publish(event.tags.as_slice())?;
    let began = Instant::now();
    let mut traced = TracedEvents::begin(&engine, &request, scope.namespace, vec![event]);
    let events = traced.events.clone();
    let mut permit = engine.admit_publish(scope.namespace, Some(admitted.principal()), &events).await?;
    let _share = body.into_share();
    let published = engine.publish_events(scope.namespace, events.clone()).await.map_err(Error::about_one_event);
    traced.note(&published);
    drop(traced);
    let stored = match published {
        // It may be sent again even if its outcome is unknown.
        Err(error) => return Ok(respond_to_repeatable(error)),
        Ok(stored) => stored,
    };
    permit.note_stored(&events, &stored);
    let no_row = || Error::Internal("publishing an event returned no row".into());
    let stored = stored.first().ok_or_else(no_row)?;
    let view = |status| WebhookView {
        id: stored.id,
        idempotency_key: &key.key,
        status,
        created_at: Timestamp(stored.created_at),
        updated_at: None,
    };
    if !stored.is_repeated {
        return Ok(with_rates(HttpResponse::Accepted().json(view("PENDING")), permit));
    }
    let status = engine.read_repeats(began, async |conn| {
        let found = find_repeated_events(conn, scope.namespace, &[(stored.id, &key)]).await?;
        Ok(found.first().ok_or_else(no_row)?.status())
    });
    match status.await {
        Ok(status) => Ok(with_rates(HttpResponse::Ok().json(view(status)), permit)),
        Err(error) => Ok(respond_to_repeatable(error)),
    }
}

/// Reads a webhook: its key, and the event that it becomes.
fn read_webhook(body: &[u8], publisher: &Publisher) -> Result<(IdempotencyKey, NewEvent), Error> {
    let mut fields = RawFields::of_body(body)?;
    let key = fields.required("idempotency_key", |fields, name| fields.text(name, limits::NAME_CHARS));
    let event_type = fields.required("event_type", |fields, name| fields.text(name, limits::NAME_CHARS));
    if is_system(event_type.as_deref()) {
        fields
            .refuse("event_type", format!("must not begin with {SYSTEM_PREFIX}, which is for the server's own events"));
    }
    let tags = fields.some_tags("tags");
    let payload = fields.json("payload", limits::PAYLOAD_BYTES);
    let (key, event_type) = fields.finish_with(key.zip(event_type))?;
    let mut event = NewEvent::titled(event_type.chars().take(limits::TITLE_CHARS).collect());
    publisher.sign(&mut event);
    event.event_type = Some(event_type);
    event.tags = tags.unwrap_or_else(|| vec![DEFAULT_TAG.to_owned()].into());
    event.payload = payload;
    event.max_retries = ATTEMPTS;
    event.backoff = Some(Backoff::Exponential {
        base_seconds: Seconds::whole(BASE_SECONDS),
        max_seconds: Seconds::whole(MAX_SECONDS),
        jitter: Jitter::default(),
        floor_seconds: None,
    });
    let key = IdempotencyKey::of(KeyOrigin::Inbox, key, &event);
    event.idempotency_key = Some(key.clone());
    Ok((key, event))
}

/// `GET /webhooks?idempotency_key=`: returns the webhook with a key.
pub(crate) async fn find_webhook(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let key =
        query.required("idempotency_key", |fields: &mut Fields<'_, _>, name| fields.text(name, limits::NAME_CHARS));
    let key = query.finish_with(key)?;
    respond(&engine, &scope, key, None).await
}

/// `GET /webhooks/{id}`: returns a webhook.
pub(crate) async fn get_webhook(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let id: EventId = path_id(&request).await?;
    expect_no_query(&request)?;
    let mut conn = engine.database().connection().await?;
    let key = find_key_of_event(&mut conn, &scope, KeyOrigin::Inbox, id).await?;
    drop(conn);
    respond(&engine, &scope, key.ok_or(Error::EventNotFound(id))?, Some(id)).await
}

/// Responds with the webhook of a key, if its event still exists.
async fn respond(engine: &Engine, scope: &Scope, key: String, id: Option<EventId>) -> Result<HttpResponse, Error> {
    let key = IdempotencyKey { origin: KeyOrigin::Inbox, key, fingerprint: Vec::new() };
    let mut conn = engine.database().connection().await?;
    let known = find_events_by_keys(&mut conn, scope.namespace, &[&key]).await?;
    let found = known.first().filter(|known| id.is_none_or(|id| known.event_id == id));
    let found = found.and_then(|known| Some((known, known.status.filter(|_| known.is_present)?)));
    let (found, status) = found.ok_or_else(|| id.map_or(Error::WebhookNotFound, Error::EventNotFound))?;
    Ok(HttpResponse::Ok().json(WebhookView {
        id: found.event_id,
        idempotency_key: &key.key,
        status: status.0.as_str(),
        created_at: Timestamp(found.created_at),
        updated_at: timestamp(found.updated_at),
    }))
}
