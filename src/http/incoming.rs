//! `/in/{token}`: takes the webhooks of other systems as they are.
//!
//! The token in the path says which source they are for. No API key is needed: the scheme of the source says how the
//! sender proves itself. Headers and query parameters that the server does not know are accepted.

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{FromRequest as _, HttpRequest, HttpResponse};
use serde_json::json;

use super::body::read_any;
use super::client_address::ClientAddress;
use super::new_event::traceparent;
use super::problem::respond_to_repeatable;
use super::rate_limit::with_rates;
use super::spans::TracedEvents;
use crate::domain::limits;
use crate::domain::source::{Respond, Webhook};
use crate::engine::Engine;
use crate::engine::sources::source::Source;
use crate::error::Error;

/// Has a browser run and load nothing of a response, which is in the hands of whoever may edit sources. Otherwise a
/// page of theirs would have the origin of the dashboard, and the session of its viewer.
const POLICY: &str = "sandbox; default-src 'none'";

/// `POST /in/{token}`: takes a webhook.
pub(crate) async fn receive_webhook(
    engine: Data<Engine>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let token = actix_web::web::Path::<String>::extract(&request).await.map_err(|_| Error::UnknownSourceToken)?;
    let address = ClientAddress::of(&request).0;
    engine.find_source(&token, address).await?;
    let body = read_any(&request, payload, limits::PAYLOAD_BYTES).await?;
    // The body may take its time, and the source may have changed meanwhile.
    let source = engine.find_source(&token, address).await?;
    let webhook = Webhook {
        headers: request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect(),
        body: &body,
    };
    verify(&engine, &source, &webhook)?;
    let spec = source.spec()?;
    if let Some(challenge) = spec.challenge(&webhook) {
        return Ok(HttpResponse::Ok().json(json!({"challenge": challenge})));
    }
    let mut event = spec.incoming(source.key.id, &webhook)?;
    event.traceparent = traceparent(&request);
    event.client_address = address;
    drop(webhook);
    let has_key = event.idempotency_key.is_some();
    let mut traced = TracedEvents::begin(&engine, &request, source.key.namespace, vec![event]);
    let events = traced.events.clone();
    let mut permit = engine.admit_publish(source.key.namespace, None, &events).await?;
    // The event has a copy of what it needs. The body is freed before the publish, which may wait.
    let _share = body.into_share();
    let published = engine.publish_incoming(source.key, events.clone()).await;
    traced.note(&published);
    drop(traced);
    let stored = match published {
        // With a key, it may be sent again even if its outcome is unknown.
        Err(error) if has_key => return Ok(respond_to_repeatable(error)),
        stored => stored?,
    };
    permit.note_stored(&events, &stored);
    Ok(with_rates(respond(&spec.respond)?, permit))
}

/// Checks that the sender has sent a webhook, and counts it if not.
fn verify(engine: &Engine, source: &Source, webhook: &Webhook<'_>) -> Result<(), Error> {
    let now = engine.time();
    source.verify(webhook, now).inspect_err(|error| {
        if let Error::WebhookRefused(rejection) = error {
            engine.refused_webhooks().note(source.key, rejection, now);
            engine.metrics().count_refused_webhook(rejection.as_str());
        }
    })
}

fn respond(respond: &Respond) -> Result<HttpResponse, Error> {
    let status = StatusCode::from_u16(respond.status).map_err(|error| Error::Internal(error.to_string()))?;
    let mut response = HttpResponse::build(status);
    response.insert_header((header::CONTENT_SECURITY_POLICY, POLICY));
    Ok(match &respond.body {
        Some(body) => response.insert_header((header::CONTENT_TYPE, respond.content_type.as_str())).body(body.clone()),
        None => response.finish(),
    })
}
