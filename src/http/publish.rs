//! `POST /events` and `/events/batch`: publishes events.
//!
//! A publisher that names an idempotency key may send its request again: the event is stored once, and the response to
//! the second request shows its present state.

use std::collections::HashMap;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use tokio::time::Instant;

use super::body::{self, Body, read_json_without_query};
use super::cloud_events::{self, Mode};
use super::doors::Admitted;
use super::idempotency::{header_key, refuse_header_key};
use super::memory::Share;
use super::new_event::{Publisher, read_event};
use super::problem::respond_to_repeatable;
use super::rate_limit::with_rates;
use super::redaction::redaction_for;
use super::sliced_body::respond_json;
use super::spans::TracedEvents;
use super::view::{EventView, Receipt, Timestamp, size_of};
use crate::domain::event::NewEvent;
use crate::domain::idempotency::{IdempotencyKey, KeyOrigin};
use crate::domain::ids::EventId;
use crate::domain::input::{Fields, RawFields, read_items};
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::events::{StoredEvent, get_event_details};
use crate::store::tables::idempotency_keys::{RepeatedEvent, find_repeated_events};

/// Tells that the response is about an event that was published before.
static REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// `POST /events`: publishes an event, or CloudEvents.
pub(crate) async fn publish_event(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    if let Some(mode) = cloud_events::mode_of(&request) {
        // Boxed, because it is rare, and every publish would carry its size.
        return Box::pin(publish_cloud_events(&engine, &admitted, &scope, &request, payload, mode)).await;
    }
    let body = read_json_without_query(&request, payload, body::MAX_EVENT_BYTES).await?;
    let mut event = read_single(&body, &Publisher::of(&request, &scope))?;
    if let Some(key) = header_key(&request)? {
        set_key(&mut event, key)?;
    }
    // The event owns copies of what it needs. The body is freed before the publish, which may wait.
    let share = body.into_share();
    let traced = TracedEvents::begin(&engine, &request, scope.namespace, vec![event]);
    publish_single(&engine, &admitted, &scope, traced, share).await
}

fn read_single(body: &[u8], publisher: &Publisher) -> Result<NewEvent, Error> {
    let mut fields = RawFields::of_body(body)?;
    let event = read_event(&mut fields, publisher);
    Ok(fields.finish_with(event)?)
}

/// Gives an event the key of its request. If it names one itself, both must be the same.
fn set_key(event: &mut NewEvent, key: String) -> Result<(), Error> {
    match &event.idempotency_key {
        Some(own) if own.key != key => {
            Err(Error::invalid("Idempotency-Key", "must be the same as the key in the body, or be left out"))
        }
        Some(_) => Ok(()),
        None => {
            event.idempotency_key = Some(IdempotencyKey::of(KeyOrigin::Publishers, key, event));
            Ok(())
        }
    }
}

/// Publishes the only event of a request.
async fn publish_single(
    engine: &Engine,
    admitted: &Admitted,
    scope: &Scope,
    mut traced: TracedEvents,
    share: Share,
) -> Result<HttpResponse, Error> {
    let events = traced.events.clone();
    let mut has_key = false;
    for event in events.iter() {
        admitted.principal().check_publish(event.tags.as_slice())?;
        has_key = event.idempotency_key.is_some();
    }
    let began = Instant::now();
    let mut permit = engine.admit_publish(scope.namespace, Some(admitted.principal()), &events).await?;
    let published = engine.publish_events(scope.namespace, events.clone()).await.map_err(Error::about_one_event);
    traced.note(&published);
    // The span ends here.
    drop(traced);
    let stored = match published {
        // With a key, it may be sent again even if its outcome is unknown.
        Err(error) if has_key => return Ok(respond_to_repeatable(error)),
        stored => stored?,
    };
    permit.note_stored(&events, &stored);
    if let (Some(event), Some(stored)) = (events.first(), stored.first().filter(|stored| stored.is_repeated)) {
        let repeat = Repeat { event, stored, began };
        // Boxed, because it is rare, and every publish would carry its size.
        let response = Box::pin(respond_to_repeat(engine, admitted, scope, repeat, share)).await;
        return Ok(with_rates(response.unwrap_or_else(respond_to_repeatable), permit));
    }
    // The engine has usually dropped its reference by now; otherwise the event is copied.
    let mut events = Arc::try_unwrap(events).unwrap_or_else(|shared| shared.as_ref().clone());
    let (Some(event), Some(stored)) = (events.pop(), stored.first()) else { return Err(no_row()) };
    let row = EventRow::published(event, stored);
    let view = EventView::published(&row, stored.enqueued);
    let mut response = respond_json(StatusCode::CREATED, size_of([&row]), &view, Some(share))?;
    response.headers_mut().insert(header::LOCATION, location_of(row.event.id)?);
    Ok(with_rates(response, permit))
}

fn no_row() -> Error {
    Error::Internal("publishing an event returned no row".into())
}

fn location_of(id: EventId) -> Result<HeaderValue, Error> {
    // Cannot fail: the path is ASCII.
    HeaderValue::from_str(&format!("/events/{id}")).map_err(|error| Error::Internal(error.to_string()))
}

/// An event that was published before, and when the request began that repeats it.
struct Repeat<'a> {
    event: &'a NewEvent,
    stored: &'a StoredEvent,
    began: Instant,
}

/// Responds with an event that was published before, in its present state.
async fn respond_to_repeat(
    engine: &Engine,
    admitted: &Admitted,
    scope: &Scope,
    repeat: Repeat<'_>,
    share: Share,
) -> Result<HttpResponse, Error> {
    let Repeat { event, stored, began } = repeat;
    let found = engine.read_repeats(began, async |conn| {
        if let Some(details) = get_event_details(conn, scope, stored.id).await? {
            return Ok(Ok(details));
        }
        let mut found = find_repeated_events(conn, scope.namespace, &[(stored.id, key_of(event)?)]).await?;
        Ok(Err(found.pop().ok_or_else(no_row)?))
    });
    let mut response = match found.await? {
        Ok(details) => {
            let redaction = redaction_for(engine, scope, admitted.principal()).await?;
            let view = EventView::repeated(&details, &redaction).for_reader(admitted.principal());
            respond_json(StatusCode::OK, size_of([&details.row]), &view, Some(share))?
        }
        Err(removed) => HttpResponse::Ok().json(RemovedEvent::of(stored, &removed)),
    };
    response.headers_mut().insert(REPLAYED.clone(), HeaderValue::from_static("true"));
    response.headers_mut().insert(header::LOCATION, location_of(stored.id)?);
    Ok(response)
}

fn key_of(event: &NewEvent) -> Result<&IdempotencyKey, Error> {
    event.idempotency_key.as_ref().ok_or_else(|| Error::Internal("an event without a key is repeated".into()))
}

/// An event that was published before and has been removed since.
#[derive(Serialize)]
struct RemovedEvent {
    id: EventId,
    status: &'static str,
    created_at: Timestamp,
    repeated: bool,
    removed: bool,
}

impl RemovedEvent {
    fn of(stored: &StoredEvent, found: &RepeatedEvent) -> Self {
        RemovedEvent {
            id: stored.id,
            status: found.status(),
            created_at: Timestamp(stored.created_at),
            repeated: true,
            removed: true,
        }
    }
}

#[derive(Serialize)]
struct Receipts {
    events: Vec<Receipt>,
}

/// `POST /events/batch`: publishes all events of a batch, or none. The publisher has the events, so the
/// response does not repeat them.
pub(crate) async fn publish_events(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    refuse_header_key(&request)?;
    let body = read_json_without_query(&request, payload, body::MAX_BATCH_BYTES).await?;
    let events = read_batch(&body, &Publisher::of(&request, &scope))?;
    let traced = TracedEvents::begin(&engine, &request, scope.namespace, events);
    store_batch(&engine, &admitted, &scope, traced, body).await
}

fn read_batch(body: &[u8], publisher: &Publisher) -> Result<Vec<NewEvent>, Error> {
    let mut fields = RawFields::of_body(body)?;
    let items = fields.required("events", Fields::items);
    let items = fields.finish_with(items)?;
    Ok(read_items("events", &items, |fields| read_event(fields, publisher))?)
}

async fn store_batch(
    engine: &Engine,
    admitted: &Admitted,
    scope: &Scope,
    mut traced: TracedEvents,
    body: Body,
) -> Result<HttpResponse, Error> {
    let events = traced.events.clone();
    for event in events.iter() {
        admitted.principal().check_publish(event.tags.as_slice())?;
    }
    let began = Instant::now();
    let mut permit = engine.admit_publish(scope.namespace, Some(admitted.principal()), &events).await?;
    // The body is freed before the publish, which may wait. Its share of the memory is kept for the events.
    let _share = body.into_share();
    let is_repeatable = !events.is_empty() && events.iter().all(|event| event.idempotency_key.is_some());
    let published = engine.publish_events(scope.namespace, events.clone()).await;
    traced.note(&published);
    drop(traced);
    let stored = match published {
        Err(error) if is_repeatable => return Ok(respond_to_repeatable(error)),
        stored => stored?,
    };
    permit.note_stored(&events, &stored);
    let receipts = match stored.iter().any(|stored| stored.is_repeated) {
        // Boxed, because it is rare, and every publish would carry its size.
        true => match Box::pin(receipts_with_repeats(engine, scope, &events, &stored, began)).await {
            Err(error) if is_repeatable => return Ok(respond_to_repeatable(error)),
            receipts => receipts?,
        },
        false => events.iter().zip(&stored).map(|(new, stored)| Receipt::of(new, stored)).collect(),
    };
    Ok(with_rates(HttpResponse::Created().json(Receipts { events: receipts }), permit))
}

/// Returns the receipts of a batch of which some events were published before. These have their present state.
async fn receipts_with_repeats(
    engine: &Engine,
    scope: &Scope,
    events: &[NewEvent],
    stored: &[StoredEvent],
    began: Instant,
) -> Result<Vec<Receipt>, Error> {
    let repeated = events.iter().zip(stored).filter(|(_, stored)| stored.is_repeated);
    let keyed = repeated.map(|(event, stored)| Ok((stored.id, key_of(event)?))).collect::<Result<Vec<_>, Error>>()?;
    let found = engine.read_repeats(began, async |conn| Ok(find_repeated_events(conn, scope.namespace, &keyed).await?));
    let found = found.await?;
    let statuses: HashMap<EventId, &'static str> = found.iter().map(|found| (found.event_id, found.status())).collect();
    let receipt = |(new, stored): (&NewEvent, &StoredEvent)| match stored.is_repeated {
        true => Ok(Receipt::repeated(stored, statuses.get(&stored.id).ok_or_else(no_row)?)),
        false => Ok(Receipt::of(new, stored)),
    };
    events.iter().zip(stored).map(receipt).collect()
}

/// Publishes one or several CloudEvents.
async fn publish_cloud_events(
    engine: &Engine,
    admitted: &Admitted,
    scope: &Scope,
    request: &HttpRequest,
    payload: Payload,
    mode: Mode,
) -> Result<HttpResponse, Error> {
    refuse_header_key(request)?;
    let publisher = Publisher::of(request, scope);
    let limit = if mode == Mode::Batched { body::MAX_BATCH_BYTES } else { body::MAX_EVENT_BYTES };
    let body = body::read_without_query(request, payload, limit).await?;
    let traced = |events| TracedEvents::begin(engine, request, scope.namespace, events);
    match mode {
        Mode::Batched => {
            let events = cloud_events::read_batch(&body, &publisher)?;
            store_batch(engine, admitted, scope, traced(events), body).await
        }
        Mode::Structured => {
            let event = cloud_events::read_structured(&body, &publisher)?;
            publish_single(engine, admitted, scope, traced(vec![event]), body.into_share()).await
        }
        Mode::Binary => {
            let event = cloud_events::read_binary(request, &body, &publisher)?;
            publish_single(engine, admitted, scope, traced(vec![event]), body.into_share()).await
        }
    }
}
