//! `/subscriptions`: the receivers of pushed events and their settings.

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use chrono::Utc;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::body::{expect_no_input, path_id, read_json_without_query, read_optional_json};
use super::doors::Admitted;
use super::if_match::{etag, read_if_match};
use super::query::{DEFAULT_PAGE, expect_no_query, read_page, read_query};
use super::view::{Timestamp, timestamp};
use crate::domain::address::masked;
use crate::domain::api_key::{KeyScope, Principal};
use crate::domain::attempt::ErrorKind;
use crate::domain::history::Numbers;
use crate::domain::ids::SubscriptionId;
use crate::domain::input::{InputError, RawFields};
use crate::domain::scope::Scope;
use crate::domain::seconds::Seconds;
use crate::domain::signature::Secret;
use crate::domain::subscription::{SubscriptionSpec, headers};
use crate::domain::{limits, text};
use crate::engine::Engine;
use crate::engine::operate::subscriptions::{SecretRotation, SubscriptionChanges};
use crate::error::Error;
use crate::store::lists::pages::page_end;
use crate::store::tables::endpoints::{EndpointRow, load_endpoints};
use crate::store::tables::filter_overruns::{FilterOverrun, load_filter_overruns};
use crate::store::tables::subscriptions::{self, SubscriptionFilter, SubscriptionRow};
use crate::webhook::{Client, Exchange, OutboundMessage};

/// The maximum size of a body with a subscription: the largest filter and template, plus other fields.
pub(crate) const MAX_SUBSCRIPTION_BYTES: usize = 256 * 1024;

/// The type of the event that a test request carries.
const TEST_EVENT: &str = "waybill.test";

/// `POST /subscriptions`: creates a subscription, and returns its secret.
pub(crate) async fn create_subscription(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, MAX_SUBSCRIPTION_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let secret = read_secret(&mut fields);
    let is_active = fields.boolean("is_active").unwrap_or(true);
    let spec_fields = fields.rest();
    // The response lists all errors at once, including those of the spec.
    if fields.has_errors()
        && let Err(errors) = SubscriptionSpec::parse(&spec_fields)
    {
        fields.refuse_all(InputError::Invalid(errors));
    }
    fields.finish()?;
    let secret = or_generate(secret)?;
    let row = engine.create_subscription(scope.clone(), spec_fields, secret.clone(), is_active).await?;
    let mut view = view(&row, None, None);
    view.insert("secret".into(), secret.as_text().into());
    let location = (header::LOCATION, format!("/subscriptions/{}", row.id));
    Ok(HttpResponse::Created().insert_header(location).insert_header(etag(row.version)).json(view))
}

/// `GET /subscriptions`: lists subscriptions.
pub(crate) async fn list_subscriptions(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let filter = SubscriptionFilter { is_active: query.boolean("is_active") };
    let page = read_page(&mut query, DEFAULT_PAGE);
    query.finish()?;
    let (page, cursors) = page.by_id(&engine, scope.namespace, "subscriptions", Numbers::Ids, &filter).await?;
    let mut conn = engine.database().connection().await?;
    let rows = subscriptions::list_subscriptions(&mut conn, &scope, &filter, page).await?;
    let urls: Vec<&str> = rows.iter().map(|row| row.url.as_str()).collect();
    let endpoints = load_endpoints(&mut conn, &scope, &urls).await?;
    let ids: Vec<SubscriptionId> = rows.iter().map(|row| row.id).collect();
    let overruns = load_filter_overruns(&mut conn, &scope, &ids).await?;
    drop(conn);
    let views = rows.iter().map(|row| {
        let overrun = overruns.iter().find(|overrun| overrun.subscription_id == row.id);
        let mut view = view(row, endpoints.iter().find(|e| e.url == row.url), overrun);
        mask_url(&mut view, admitted.principal());
        view
    });
    let views: Vec<_> = views.collect();
    let next = cursors.next(page_end(&rows, page.limit, |row| row.id.0)).await?;
    Ok(HttpResponse::Ok().json(json!({"subscriptions": views, "next": next})))
}

/// `GET /subscriptions/{id}`: returns a subscription.
pub(crate) async fn get_subscription(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    expect_no_query(&request)?;
    let mut conn = engine.database().connection().await?;
    let row = subscriptions::get_subscription(&mut conn, &scope, id).await?;
    drop(conn);
    let row = row.ok_or(Error::SubscriptionNotFound(id))?;
    let mut view = whole_view(&engine, &scope, &row).await?;
    mask_url(&mut view, admitted.principal());
    Ok(HttpResponse::Ok().insert_header(etag(row.version)).json(view))
}

/// `PATCH /subscriptions/{id}`: changes the given fields of a subscription.
pub(crate) async fn update_subscription(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let expected = read_if_match(&request)?;
    let body = read_json_without_query(&request, payload, MAX_SUBSCRIPTION_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let is_active = fields.boolean("is_active");
    if fields.take("secret").is_some() {
        fields.refuse("secret", "is changed by POST /subscriptions/{id}/rotate-secret");
    }
    let spec_fields = fields.rest();
    fields.finish()?;
    let changes = SubscriptionChanges { fields: spec_fields, is_active };
    let row = engine.update_subscription(scope.clone(), id, expected, changes).await?;
    // The change is committed: a failure to read the rest must not deny it.
    respond(&engine, &scope, &row).await.map_err(Error::after_a_part)
}

/// `DELETE /subscriptions/{id}`: deletes a subscription.
pub(crate) async fn delete_subscription(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let expected = read_if_match(&request)?;
    expect_no_input(&request, payload).await?;
    engine.delete_subscription(scope, id, expected).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /subscriptions/{id}/rotate-secret`: sets a new secret. The old one stays valid for a while.
pub(crate) async fn rotate_subscription_secret(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    let expected = read_if_match(&request)?;
    let body = read_optional_json(&request, payload, MAX_SUBSCRIPTION_BYTES).await?;
    let mut fields = RawFields::of_optional_body(&body)?;
    let secret = read_secret(&mut fields);
    let overlap = fields
        .seconds("overlap_seconds", Seconds::whole(limits::SECRET_OVERLAP_SECONDS))
        .unwrap_or(Seconds::whole(limits::DEFAULT_SECRET_OVERLAP_SECONDS));
    fields.finish()?;
    let secret = or_generate(secret)?;
    let rotation = SecretRotation { secret: secret.clone(), overlap_seconds: overlap.as_f64() };
    let row = engine.rotate_subscription_secret(scope.clone(), id, expected, rotation).await?;
    Ok(HttpResponse::Ok().insert_header(etag(row.version)).json(json!({
        "subscription_id": row.id, "version": row.version, "secret": secret.as_text(), "overlap_seconds": overlap,
    })))
}

/// `POST /subscriptions/{id}/resume`: ends the pause of the endpoint and closes its circuit breaker.
pub(crate) async fn resume_subscription(
    engine: Data<Engine>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    expect_no_input(&request, payload).await?;
    let row = engine.resume_subscription(scope.clone(), id).await?;
    respond(&engine, &scope, &row).await.map_err(Error::after_a_part)
}

/// `POST /subscriptions/{id}/test`: sends a signed test request and returns its outcome.
///
/// The body of the receiver's response is not returned, because the caller may not be able to reach
/// that receiver.
pub(crate) async fn test_subscription(
    engine: Data<Engine>,
    client: Data<Client>,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    expect_no_input(&request, payload).await?;
    let subscriber = engine.load_subscriber(&scope, id).await?;
    let message = test_message(id)?;
    let webhook_id = message.webhook_id.clone();
    let exchange = match engine.credentials_of(&subscriber) {
        Ok(credentials) => {
            let spec = &subscriber.subscription.spec;
            let request = message.into_request(spec, &credentials, Utc::now().timestamp());
            let refused = |reason| Error::invalid("transform", format!("cannot be applied: {reason}"));
            client.send(request.map_err(refused)?).await
        }
        Err(unreadable) => Exchange::not_sent(ErrorKind::SecretUnreadable, &unreadable.to_string()),
    };
    let response = exchange.result.as_ref().ok();
    Ok(HttpResponse::Ok().json(json!({
        "delivered": response.is_some_and(crate::webhook::WebhookResponse::is_success),
        "webhook_id": webhook_id,
        "status_code": response.map(|response| response.status),
        "error_kind": exchange.result.as_ref().err().map(|error| error.kind.as_str()),
        "duration_ms": exchange.duration.as_millis() as u64,
    })))
}

fn test_message(id: SubscriptionId) -> Result<OutboundMessage, Error> {
    let number = getrandom::u64().map_err(|error| Error::Internal(error.to_string()))?;
    Ok(OutboundMessage {
        webhook_id: format!("test_{number:016x}"),
        event_id: None,
        event_type: Some(TEST_EVENT.into()),
        title: "a test".into(),
        created_at: Utc::now(),
        tags: Vec::new(),
        labels: [("subscription_id".to_owned(), id.to_string())].into(),
        payload: json!({"test": true, "subscription_id": id}).to_string(),
        correlation_id: None,
        ordering_key: None,
        traceparent: None,
        attempt: 1,
    })
}

/// Responds with a subscription, its endpoint and its filter overruns.
async fn respond(engine: &Engine, scope: &Scope, row: &SubscriptionRow) -> Result<HttpResponse, Error> {
    let view = whole_view(engine, scope, row).await?;
    Ok(HttpResponse::Ok().insert_header(etag(row.version)).json(view))
}

async fn whole_view(engine: &Engine, scope: &Scope, row: &SubscriptionRow) -> Result<Map<String, Value>, Error> {
    let mut conn = engine.database().connection().await?;
    let endpoints = load_endpoints(&mut conn, scope, &[&row.url]).await?;
    let overruns = load_filter_overruns(&mut conn, scope, &[row.id]).await?;
    Ok(view(row, endpoints.first(), overruns.first()))
}

fn read_secret(fields: &mut RawFields<'_>) -> Option<Secret> {
    let given: String = fields.value("secret", "a string")?;
    let secret = text::check(&given, limits::NAME_CHARS).and_then(|()| Secret::parse(&given));
    secret.map_err(|reason| fields.refuse("secret", reason)).ok()
}

fn or_generate(secret: Option<Secret>) -> Result<Secret, Error> {
    secret.map_or_else(|| Secret::generate().map_err(Error::Internal), Ok)
}

/// Returns the view of a subscription: its settings and its state, without its secret and without the
/// values of its headers.
pub(crate) fn view(
    row: &SubscriptionRow,
    endpoint: Option<&EndpointRow>,
    overrun: Option<&FilterOverrun>,
) -> Map<String, Value> {
    let mut view = Map::new();
    view.insert("id".into(), row.id.into());
    view.insert("version".into(), row.version.into());
    view.insert("is_active".into(), row.is_active.into());
    view.insert("inactive_reason".into(), row.inactive_reason.clone().into());
    let mut spec: Map<String, Value> = serde_json::from_str(row.spec.0.as_str()).unwrap_or_default();
    headers::hide_values(&mut spec);
    view.extend(spec);
    view.insert("endpoint".into(), json!(EndpointView::of(endpoint)));
    view.insert("filter_over_budget".into(), overrun_view(overrun));
    view.insert("created_at".into(), json!(Timestamp(row.created_at)));
    view.insert("updated_at".into(), json!(Timestamp(row.updated_at)));
    view
}

/// Shows only the beginning of the URL of a subscription to those who may not change it: receivers often put a token
/// behind it.
pub(crate) fn mask_url(subscription: &mut Map<String, Value>, reader: &Principal) {
    if reader.scopes.allow(KeyScope::Operate) {
        return;
    }
    if let Some(Value::String(url)) = subscription.get_mut("url") {
        *url = masked(url);
    }
}

/// Returns the number of events for which the filter exceeded its budget, and the latest of them.
fn overrun_view(overrun: Option<&FilterOverrun>) -> Value {
    json!({
        "events": overrun.map_or(0, |overrun| overrun.events),
        "last_at": timestamp(overrun.map(|overrun| overrun.last_at)),
        "last_event_id": overrun.map(|overrun| overrun.last_event_id),
    })
}

/// The state of an endpoint in a response.
#[derive(Serialize)]
pub(crate) struct EndpointView {
    pub breaker: &'static str,
    pub failures_in_row: i32,
    pub paused_until: Option<Timestamp>,
}

impl EndpointView {
    pub(crate) fn of(endpoint: Option<&EndpointRow>) -> Self {
        let Some(endpoint) = endpoint else {
            return EndpointView { breaker: "closed", failures_in_row: 0, paused_until: None };
        };
        let is_paused = endpoint.paused_until.is_some_and(|until| until > endpoint.now);
        // An endpoint may also be paused because it asked for that. Its breaker is closed then.
        let breaker = match (endpoint.opened_at.is_some(), is_paused) {
            (true, true) => "open",
            (true, false) => "half_open",
            (false, _) => "closed",
        };
        EndpointView {
            breaker,
            failures_in_row: endpoint.failures_in_row,
            paused_until: timestamp(endpoint.paused_until.filter(|_| is_paused)),
        }
    }
}
