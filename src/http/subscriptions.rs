//! `/subscriptions`: who gets events pushed, and how.

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use chrono::Utc;
use serde_json::{Map, Value, json};

use super::body::{path_id, read_bare, read_only_json};
use super::cursor::{next_cursor, position_of};
use super::query::{expect_no_query, read_query, take_page};
use super::view::{Timestamp, timestamp};
use crate::domain::history::Numbers;
use crate::domain::ids::SubscriptionId;
use crate::domain::input::{InputError, RawFields};
use crate::domain::scope::Scope;
use crate::domain::seconds::Seconds;
use crate::domain::signature::Secret;
use crate::domain::subscription::{SubscriptionSpec, headers};
use crate::domain::{limits, text};
use crate::engine::Engine;
use crate::engine::operate::subscriptions::SubscriptionChanges;
use crate::error::Error;
use crate::store::lists::pages::page_end;
use crate::store::tables::endpoints::{EndpointRow, load_endpoints};
use crate::store::tables::filter_overruns::{FilterOverrun, load_filter_overruns};
use crate::store::tables::subscriptions::{self, SubscriptionRow};
use crate::webhook::{Client, OutboundMessage};

/// Bytes of a subscription: a filter and a template of the largest size, and room around them.
const ONE_SUBSCRIPTION: usize = 256 * 1024;

/// The type of the event that a test sends.
const TEST_EVENT: &str = "waybill.test";

/// `POST /subscriptions`.
pub async fn create_subscription(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_only_json(&request, payload, ONE_SUBSCRIPTION).await?;
    let mut fields = RawFields::of_body(&body)?;
    let secret = read_secret(&mut fields);
    let is_active = fields.boolean("is_active").unwrap_or(true);
    let rest = fields.rest();
    // Whoever has to mend one thing wants to know of all of them.
    if fields.has_errors()
        && let Err(errors) = SubscriptionSpec::parse(&rest)
    {
        fields.refuse_all(InputError::Invalid(errors));
    }
    fields.finish()?;
    let secret = or_new(secret)?;
    let row = engine.create_subscription(scope, rest, secret.clone(), is_active).await?;
    let mut view = view(&row, None, None);
    view.insert("secret".into(), secret.as_text().into());
    let location = (header::LOCATION, format!("/subscriptions/{}", row.id));
    Ok(HttpResponse::Created().insert_header(location).json(view))
}

/// `GET /subscriptions`.
pub async fn list_subscriptions(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let is_active = query.boolean("is_active");
    let (after, limit) = take_page(&mut query);
    query.finish()?;
    let after = position_of(after, &engine, Numbers::Ids).await?.unwrap_or(0);
    let mut conn = engine.database().connection().await?;
    let rows = subscriptions::list_subscriptions(&mut conn, &scope, is_active, after, limit).await?;
    let urls: Vec<&str> = rows.iter().map(|row| row.url.as_str()).collect();
    let endpoints = load_endpoints(&mut conn, &scope, &urls).await?;
    let ids: Vec<SubscriptionId> = rows.iter().map(|row| row.id).collect();
    let overruns = load_filter_overruns(&mut conn, &ids).await?;
    let views = rows.iter().map(|row| {
        let overrun = overruns.iter().find(|overrun| overrun.subscription_id == row.id);
        view(row, endpoints.iter().find(|e| e.url == row.url), overrun)
    });
    let views: Vec<_> = views.collect();
    let next = next_cursor(page_end(&rows, limit, |row| row.id.0), &engine, Numbers::Ids).await?;
    Ok(HttpResponse::Ok().json(json!({"subscriptions": views, "next": next})))
}

/// `GET /subscriptions/{id}`.
pub async fn get_subscription(engine: Data<Engine>, scope: Scope, request: HttpRequest) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    expect_no_query(&request)?;
    let mut conn = engine.database().connection().await?;
    let row = subscriptions::get_subscription(&mut conn, &scope, id).await?;
    drop(conn);
    show(&engine, &row.ok_or(Error::SubscriptionNotFound(id))?).await
}

/// `PATCH /subscriptions/{id}`.
pub async fn change_subscription(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let body = read_only_json(&request, payload, ONE_SUBSCRIPTION).await?;
    let mut fields = RawFields::of_body(&body)?;
    let is_active = fields.boolean("is_active");
    if fields.take("secret").is_some() {
        fields.refuse("secret", "is changed by POST /subscriptions/{id}/rotate-secret");
    }
    let rest = fields.rest();
    fields.finish()?;
    let row = engine.change_subscription(scope, id, SubscriptionChanges { fields: rest, is_active }).await?;
    show(&engine, &row).await
}

/// `DELETE /subscriptions/{id}`.
pub async fn delete_subscription(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    read_bare(&request, payload).await?;
    engine.delete_subscription(scope, id).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /subscriptions/{id}/rotate-secret`.
pub async fn rotate_secret(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let body = read_only_json(&request, payload, ONE_SUBSCRIPTION).await?;
    let mut fields = RawFields::of_body(&body)?;
    let secret = read_secret(&mut fields);
    let overlap = fields
        .seconds("overlap_seconds", Seconds::whole(limits::SECRET_OVERLAP_SECONDS))
        .unwrap_or(Seconds::whole(limits::DEFAULT_SECRET_OVERLAP_SECONDS));
    fields.finish()?;
    let secret = or_new(secret)?;
    let row = engine.rotate_secret(scope, id, secret.clone(), overlap.as_f64()).await?;
    Ok(HttpResponse::Ok().json(json!({
        "id": row.id, "version": row.version, "secret": secret.as_text(), "overlap_seconds": overlap,
    })))
}

/// `POST /subscriptions/{id}/resume`: lifts the pause of its endpoint, and closes its breaker.
pub async fn resume_subscription(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    read_bare(&request, payload).await?;
    let row = engine.resume_subscription(scope, id).await?;
    show(&engine, &row).await
}

/// `POST /subscriptions/{id}/test`: a signed request like any other, of which only the outcome is
/// told. What the receiver answered is not: it may be one that the caller could not reach.
pub async fn test_subscription(
    engine: Data<Engine>,
    client: Data<Client>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    read_bare(&request, payload).await?;
    let (spec, secrets) = engine.load_subscriber(id).await?;
    let letter = test_letter(id)?;
    let webhook_id = letter.webhook_id.clone();
    let exchange = match letter.into_request(&spec, &secrets, Utc::now().timestamp()) {
        Ok(request) => client.send(request).await,
        Err(reason) => return Err(Error::invalid("transform", format!("cannot be applied: {reason}"))),
    };
    let answer = exchange.result.as_ref().ok();
    Ok(HttpResponse::Ok().json(json!({
        "delivered": answer.is_some_and(crate::webhook::WebhookResponse::is_success),
        "webhook_id": webhook_id,
        "status_code": answer.map(|answer| answer.status),
        "error_kind": exchange.result.as_ref().err().map(|error| error.kind.as_str()),
        "duration_ms": exchange.duration.as_millis() as u64,
    })))
}

fn test_letter(id: SubscriptionId) -> Result<OutboundMessage, Error> {
    let number = getrandom::u64().map_err(|error| Error::Internal(error.to_string()))?;
    Ok(OutboundMessage {
        webhook_id: format!("test_{number:016x}"),
        event_type: Some(TEST_EVENT.into()),
        title: "a test".into(),
        time: Utc::now(),
        tags: Vec::new(),
        labels: [("subscription_id".to_owned(), id.to_string())].into(),
        payload: json!({"test": true, "subscription_id": id}).to_string(),
        correlation_id: None,
        ordering_key: None,
        traceparent: None,
        attempt: 1,
    })
}

async fn show(engine: &Engine, row: &SubscriptionRow) -> Result<HttpResponse, Error> {
    let mut conn = engine.database().connection().await?;
    let endpoints = load_endpoints(&mut conn, &engine.scope(), &[&row.url]).await?;
    let overruns = load_filter_overruns(&mut conn, &[row.id]).await?;
    Ok(HttpResponse::Ok().json(view(row, endpoints.first(), overruns.first())))
}

fn read_secret(fields: &mut RawFields<'_>) -> Option<Secret> {
    let given: String = fields.value("secret", "a string")?;
    let secret = text::check(&given, limits::NAME_CHARS).and_then(|_| Secret::parse(&given));
    secret.map_err(|reason| fields.refuse("secret", reason)).ok()
}

fn or_new(secret: Option<Secret>) -> Result<Secret, Error> {
    secret.map_or_else(|| Secret::generate().map_err(Error::Internal), Ok)
}

/// A subscription on the wire: what was set, and how it is doing. Never its secret, and no
/// values of headers.
fn view(row: &SubscriptionRow, endpoint: Option<&EndpointRow>, overrun: Option<&FilterOverrun>) -> Map<String, Value> {
    let mut view = Map::new();
    view.insert("id".into(), row.id.into());
    view.insert("version".into(), row.version.into());
    view.insert("is_active".into(), row.is_active.into());
    view.insert("inactive_reason".into(), row.inactive_reason.clone().into());
    let mut spec: Map<String, Value> = serde_json::from_str(row.spec.0.as_str()).unwrap_or_default();
    headers::mask(&mut spec);
    view.extend(spec);
    view.insert("endpoint".into(), endpoint_view(endpoint));
    view.insert("filter_over_budget".into(), overrun_view(overrun));
    view.insert("created_at".into(), json!(Timestamp(row.created_at)));
    view.insert("updated_at".into(), json!(Timestamp(row.updated_at)));
    view
}

/// For how many events the filter exceeded its budget.
fn overrun_view(overrun: Option<&FilterOverrun>) -> Value {
    json!({
        "events": overrun.map_or(0, |overrun| overrun.events),
        "last_at": timestamp(overrun.map(|overrun| overrun.last_at)),
        "last_event_id": overrun.map(|overrun| overrun.last_event_id),
    })
}

fn endpoint_view(endpoint: Option<&EndpointRow>) -> Value {
    let Some(endpoint) = endpoint else {
        return json!({"state": "closed", "failures_in_row": 0, "paused_until": null});
    };
    let is_paused = endpoint.paused_until.is_some_and(|until| until > endpoint.now);
    let state = match (endpoint.opened_at.is_some(), is_paused) {
        (true, true) => "open",
        (true, false) => "half_open",
        (false, true) => "paused",
        (false, false) => "closed",
    };
    json!({
        "state": state,
        "failures_in_row": endpoint.failures_in_row,
        "paused_until": timestamp(endpoint.paused_until.filter(|_| is_paused)),
    })
}
