//! TRANSLATION: from HTTP to the engine and back. Handlers parse, call and shape.
//!
//! [`routes`] lists every endpoint on one page, each with its [`Door`]: the scope that a caller's key needs.
//! `openapi.yaml` describes the same endpoints, and a test checks that neither has one that the other lacks.

pub(crate) mod acceptor;
pub(crate) mod audit;
pub(crate) mod body;
pub(crate) mod browser;
pub mod claim_body;
pub(crate) mod claims;
pub(crate) mod client_address;
pub(crate) mod client_socket;
pub(crate) mod client_stream;
pub(crate) mod cloud_events;
pub mod code;
pub(crate) mod connection;
pub(crate) mod connection_limit;
pub(crate) mod cursor;
pub(crate) mod dashboard;
pub(crate) mod dead_letters;
pub(crate) mod deliveries;
pub mod docs;
pub(crate) mod doctor;
pub mod doors;
mod event_filter;
pub(crate) mod event_types;
pub(crate) mod events;
pub(crate) mod framing;
pub(crate) mod health;
pub(crate) mod http2;
pub(crate) mod idempotency;
pub(crate) mod if_match;
pub(crate) mod inbox;
pub(crate) mod incoming;
pub(crate) mod keys;
pub(crate) mod log_stream;
pub(crate) mod logs;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod namespaces;
pub(crate) mod new_event;
pub(crate) mod openapi_json;
pub(crate) mod operate;
pub(crate) mod operations;
pub(crate) mod page;
mod probe_turns;
pub mod problem;
pub(crate) mod problem_pages;
pub(crate) mod publish;
pub(crate) mod query;
pub(crate) mod rate_limit;
pub(crate) mod redaction;
mod refused_settlements;
pub(crate) mod request_id;
pub(crate) mod request_log;
pub(crate) mod scope;
pub(crate) mod sent_claims;
pub(crate) mod server;
pub(crate) mod server_facts;
pub(crate) mod session;
pub(crate) mod settle;
pub(crate) mod sliced_body;
pub(crate) mod sources;
mod spans;
pub(crate) mod stats;
pub(crate) mod subscription_check;
pub(crate) mod subscriptions;
pub(crate) mod tags;
pub(crate) mod tcp_info;
pub(crate) mod tls;
pub(crate) mod usage;
pub(crate) mod view;
pub(crate) mod work;
pub(crate) mod workers;

use std::time::Duration;

use actix_web::http::{Method, header};
use actix_web::{FromRequest, Handler, HttpRequest, HttpResponse, Responder, Route, guard, rt, web};
use futures_util::FutureExt;
use tokio::time::timeout;

use crate::engine::Engine;
use crate::error::{Error, OutageKind};
use crate::logging::REQUEST_ID;
use crate::metrics::http::EndpointIndex;
use code::Code;
use dashboard::{assets, login};
use doors::Door::{self, Admin, Metrics, Open, Operate, Publish, Read, Work};
use problem::{Problem, respond_to_repeatable};
use request_log::PathEndpoints;
use scope::Reader;

/// The time after which a read fails, even if the database hangs. Writes have their own timeouts, in
/// the engine.
const READ_TIMEOUT: Duration = Duration::from_millis(4_700);

/// All supported methods, as listed in the response to `OPTIONS *`.
const ALL_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// One method of one path.
pub struct Endpoint {
    pub method: Method,
    /// The path pattern, with `{id}` for an id that belongs to a namespace.
    pub path: &'static str,
    /// Whether `HEAD` is supported as well.
    pub has_head: bool,
    /// Who may call it.
    pub door: Door,
    route: Route,
}

/// Returns all endpoints. Fixed paths come before paths with an id. The router tries paths with an
/// id one after the other, so the most frequently requested ones come first.
pub fn routes() -> Vec<Endpoint> {
    vec![
        post("/events", Publish, publish::publish_event),
        read("/events", Read, events::list_events),
        post("/events/batch", Publish, publish::publish_events),
        get_with_effect("/events/subscribe", Work, repeatable(claims::claim_event)),
        repeatable_post("/events/claim", Work, claims::claim_events),
        post("/events/settle", Work, settle::settle_events),
        post("/events/reset", Operate, operations::reset_events),
        post("/events/retry", Operate, operations::retry_events),
        post("/events/cancel", Operate, operations::cancel_events),
        post("/events/{id}/complete", Work, work::complete_event),
        post("/events/{id}/heartbeat", Work, work::send_heartbeat),
        post("/events/{id}/start", Work, work::start_event),
        post("/events/{id}/fail", Work, work::fail_event),
        read("/events/{id}", Read, events::get_event),
        post("/events/{id}/release", Work, work::release_event),
        post("/events/{id}/reset", Operate, operate::reset_event),
        post("/events/{id}/retry", Operate, operate::retry_event),
        repeatable_post("/events/{id}/cancel", Operate, operate::cancel_event),
        post("/subscriptions", Operate, subscriptions::create_subscription),
        read("/subscriptions", Read, subscriptions::list_subscriptions),
        post("/subscriptions/check", Operate, subscription_check::check_subscription),
        read("/subscriptions/{id}", Read, subscriptions::get_subscription),
        patch("/subscriptions/{id}", Operate, subscriptions::update_subscription),
        delete("/subscriptions/{id}", Operate, repeatable(subscriptions::delete_subscription)),
        post("/subscriptions/{id}/rotate-secret", Operate, subscriptions::rotate_subscription_secret),
        post("/subscriptions/{id}/test", Operate, subscriptions::test_subscription),
        repeatable_post("/subscriptions/{id}/resume", Operate, subscriptions::resume_subscription),
        post("/in/{token}", Open, incoming::receive_webhook),
        post("/sources", Operate, sources::create_source),
        read("/sources", Read, sources::list_sources),
        read("/sources/{id}", Read, sources::get_source),
        patch("/sources/{id}", Operate, sources::update_source),
        delete("/sources/{id}", Operate, sources::delete_source),
        post("/sources/{id}/rotate-secret", Operate, sources::rotate_source_secret),
        read("/deliveries", Read, deliveries::list_deliveries),
        post("/deliveries/retry", Operate, operations::retry_deliveries),
        post("/deliveries/cancel", Operate, operations::cancel_deliveries),
        read("/deliveries/{id}", Read, deliveries::get_delivery),
        post("/deliveries/{id}/retry", Operate, deliveries::retry_delivery),
        repeatable_post("/deliveries/{id}/cancel", Operate, deliveries::cancel_delivery),
        post("/deliveries/{id}/dead-letter", Operate, deliveries::dead_letter_delivery),
        read("/dead-letters", Read, dead_letters::list_dead_letters),
        post("/dead-letters/replay", Operate, operations::replay_dead_letters),
        read("/dead-letters/{id}", Read, dead_letters::get_dead_letter),
        post("/dead-letters/{id}/replay", Operate, dead_letters::replay_dead_letter),
        read("/operations", Read, operations::list_operations),
        read("/operations/{id}", Read, operations::get_operation),
        repeatable_post("/operations/{id}/cancel", Operate, operations::cancel_operation),
        post("/namespaces", Admin, namespaces::create_namespace),
        read("/namespaces", Admin, namespaces::list_namespaces),
        read("/namespaces/{name}", Admin, namespaces::get_namespace),
        patch("/namespaces/{name}", Admin, namespaces::update_namespace),
        post("/webhooks", Publish, inbox::accept_webhook),
        read("/webhooks", Read, inbox::find_webhook),
        read("/webhooks/{id}", Read, inbox::get_webhook),
        read("/usage", Read, usage::get_usage),
        read("/event-types", Read, event_types::list_event_types),
        read("/event-types/{name}", Read, event_types::get_event_type),
        put("/event-types/{name}", Operate, repeatable(event_types::put_event_type)),
        delete("/event-types/{name}", Operate, repeatable(event_types::delete_event_type)),
        read("/logs", Read, logs::list_log_entries),
        stream("/logs/stream", Read, log_stream::stream_log_entries),
        read("/audit", Admin, audit::list_audit_entries),
        read("/workers", Read, workers::list_workers),
        read("/tags", Read, tags::list_tags),
        read("/stats", Read, stats::get_stats),
        read("/stats/history", Read, stats::get_stats_history),
        post("/keys", Admin, keys::create_key),
        read("/keys", Admin, keys::list_keys),
        patch("/keys/{id}", Admin, repeatable(keys::update_key)),
        repeatable_post("/keys/{id}/revoke", Admin, keys::revoke_key),
        post("/keys/{id}/rotate", Admin, keys::rotate_key),
        probe("/doctor", Admin, doctor::get_diagnosis),
        probe("/metrics", Metrics, metrics::get_metrics),
        get("/health", Open, health::get_health),
        probe("/ready", Open, health::get_readiness),
        get("/problems/{code}", Open, problem_pages::get_problem_page),
        get("/openapi.yaml", Open, docs::get_openapi_yaml),
        get("/openapi.json", Open, docs::get_openapi_json),
        get("/docs", Open, docs::get_docs),
        get("/docs/scalar.js", Open, docs::get_docs_script),
    ]
}

/// Returns the pages for people, and what these need. They are no part of the API, and not in `openapi.yaml`.
pub fn pages() -> Vec<Endpoint> {
    vec![
        page("/login", Open, login::get_login),
        post("/login", Open, login::log_in),
        post("/logout", Open, login::log_out),
        page("/ui/session", Read, login::get_session),
        page("/", Read, dashboard::overview::overview_page),
        page("/ui/events", Read, dashboard::events::events_page),
        page("/ui/events/{id}", Read, dashboard::event::event_page),
        page("/ui/workers", Read, dashboard::workers::workers_page),
        page("/ui/tags", Read, dashboard::tags::tags_page),
        page("/ui/publish", Publish, dashboard::publish::publish_page),
        page("/ui/event-types", Read, dashboard::event_types::event_types_page),
        page("/ui/event-types/{name}", Read, dashboard::event_type::event_type_page),
        page("/ui/sources", Read, dashboard::sources::sources_page),
        page("/ui/sources/new", Operate, dashboard::source::new_source_page),
        page("/ui/sources/{id}", Read, dashboard::source::source_page),
        page("/ui/operations", Read, dashboard::operations::operations_page),
        page("/ui/operations/{id}", Read, dashboard::operations::operation_page),
        page("/ui/namespaces", Admin, dashboard::namespaces::namespaces_page),
        page("/ui/namespaces/{name}", Admin, dashboard::namespace::namespace_page),
        page("/ui/keys", Admin, dashboard::keys::keys_page),
        page("/ui/keys/new", Admin, dashboard::key::new_key_page),
        page("/ui/keys/{id}", Admin, dashboard::key::key_page),
        page("/ui/audit", Admin, dashboard::audit::audit_page),
        page("/ui/settings", Read, dashboard::settings::settings_page),
        page("/ui/subscriptions", Read, dashboard::subscriptions::subscriptions_page),
        page("/ui/subscriptions/new", Operate, dashboard::subscription_form::new_subscription_page),
        page("/ui/subscriptions/{id}", Read, dashboard::subscription::subscription_page),
        page("/ui/subscriptions/{id}/edit", Operate, dashboard::subscription_form::edit_subscription_page),
        page("/ui/deliveries", Read, dashboard::deliveries::deliveries_page),
        page("/ui/deliveries/{id}", Read, dashboard::delivery::delivery_page),
        page("/ui/dead-letters", Read, dashboard::dead_letters::dead_letters_page),
        page("/ui/dead-letters/{id}", Read, dashboard::dead_letter::dead_letter_page),
        get("/assets/{name}", Open, assets::get_asset),
    ]
}

/// Returns the endpoints of the API and the pages. A place in this list is the place of an endpoint in the metrics.
fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = routes();
    endpoints.extend(pages());
    endpoints
}

fn configure(config: &mut web::ServiceConfig) {
    let mut endpoints: Vec<(EndpointIndex, Endpoint)> =
        endpoints().into_iter().enumerate().map(|(index, endpoint)| (EndpointIndex(index), endpoint)).collect();
    while let Some(path) = endpoints.first().map(|(_, endpoint)| endpoint.path) {
        let (same_path, others): (Vec<_>, Vec<_>) = endpoints.into_iter().partition(|(_, other)| other.path == path);
        let measured = same_path.iter().map(|(index, endpoint)| (endpoint.method.clone(), *index)).collect();
        let same_path: Vec<Endpoint> = same_path.into_iter().map(|(_, endpoint)| endpoint).collect();
        let allow = allowed_methods(&same_path);
        let resource = web::resource(path).app_data(PathEndpoints { path, endpoints: measured });
        let resource = same_path.into_iter().fold(resource, |resource, endpoint| resource.route(endpoint.route));
        let other_method = move |request: HttpRequest| other_method(request, allow.clone());
        config.service(resource.default_service(web::to(other_method)));
        endpoints = others;
    }
}

/// Returns the value of `Allow` for a path with these endpoints.
fn allowed_methods(endpoints: &[Endpoint]) -> String {
    let mut methods = Vec::new();
    for endpoint in endpoints {
        methods.push(endpoint.method.as_str());
        methods.extend(endpoint.has_head.then_some("HEAD"));
    }
    methods.push("OPTIONS");
    methods.join(", ")
}

fn endpoint<F, Args>(method: Method, path: &'static str, door: Door, handler: F) -> Endpoint
where
    F: Handler<Args, Output: Responder + 'static>,
    Args: FromRequest + 'static,
{
    Endpoint {
        route: web::method(method.clone()).to(doors::guarded(door, handler)),
        method,
        path,
        has_head: false,
        door,
    }
}

/// Returns an endpoint for `GET` and `HEAD`. For `HEAD` the server omits the body.
fn get<F: Handler<Args, Output: Responder + 'static>, Args: FromRequest + 'static>(
    path: &'static str,
    door: Door,
    handler: F,
) -> Endpoint {
    let either = guard::fn_guard(|context| matches!(context.head().method, Method::GET | Method::HEAD));
    let route = web::route().guard(either).to(doors::guarded(door, handler));
    Endpoint { route, method: Method::GET, path, has_head: true, door }
}

/// Returns an endpoint for a page, which reads the database and waits for nothing else. Who may not see it is led to the
/// login, or reads why.
fn page<F, Args>(path: &'static str, door: Door, handler: F) -> Endpoint
where
    F: Handler<Args, Output = Result<HttpResponse, Error>>,
    Args: FromRequest + 'static,
{
    let either = guard::fn_guard(|context| matches!(context.head().method, Method::GET | Method::HEAD));
    let route = web::route().guard(either).to(doors::guarded_page(door, in_time(in_turn(handler))));
    Endpoint { route, method: Method::GET, path, has_head: true, door }
}

/// Returns an endpoint for a `GET` that changes something, and therefore must not serve `HEAD`.
fn get_with_effect<F: Handler<Args, Output: Responder + 'static>, Args: FromRequest + 'static>(
    path: &'static str,
    door: Door,
    handler: F,
) -> Endpoint {
    endpoint(Method::GET, path, door, handler)
}

fn post<F: Handler<Args, Output: Responder + 'static>, Args: FromRequest + 'static>(
    path: &'static str,
    door: Door,
    handler: F,
) -> Endpoint {
    endpoint(Method::POST, path, door, handler)
}

/// Returns an endpoint for a `POST` that has the same effect if it is sent twice: a client whose response
/// says that the outcome is unknown may send it again.
fn repeatable_post<F, Args>(path: &'static str, door: Door, handler: F) -> Endpoint
where
    F: Handler<Args, Output = Result<HttpResponse, Error>>,
    Args: FromRequest + 'static,
{
    endpoint(Method::POST, path, door, repeatable(handler))
}

fn repeatable<F, Args>(handler: F) -> impl Handler<(Args,), Output = HttpResponse>
where
    F: Handler<Args, Output = Result<HttpResponse, Error>>,
    Args: FromRequest + 'static,
{
    // Not an `async` block, which would hold the future of the handler twice: thousands of them wait.
    move |args: Args| handler.call(args).map(|response| response.unwrap_or_else(respond_to_repeatable))
}

fn patch<F: Handler<Args, Output: Responder + 'static>, Args: FromRequest + 'static>(
    path: &'static str,
    door: Door,
    handler: F,
) -> Endpoint {
    endpoint(Method::PATCH, path, door, handler)
}

fn put<F: Handler<Args, Output: Responder + 'static>, Args: FromRequest + 'static>(
    path: &'static str,
    door: Door,
    handler: F,
) -> Endpoint {
    endpoint(Method::PUT, path, door, handler)
}

fn delete<F: Handler<Args, Output: Responder + 'static>, Args: FromRequest + 'static>(
    path: &'static str,
    door: Door,
    handler: F,
) -> Endpoint {
    endpoint(Method::DELETE, path, door, handler)
}

/// Returns an endpoint for a `GET` that reads the database and waits for nothing else.
fn read<F, Args>(path: &'static str, door: Door, handler: F) -> Endpoint
where
    F: Handler<Args, Output = Result<HttpResponse, Error>>,
    Args: FromRequest + 'static,
{
    get(path, door, in_time(in_turn(handler)))
}

/// Returns an endpoint for a `GET` that asks about the state of the server. It takes no turn of the reads: it has turns
/// of its own ([`probe_turns`]), and must answer when reads are slow.
fn probe<F, Args>(path: &'static str, door: Door, handler: F) -> Endpoint
where
    F: Handler<Args, Output = Result<HttpResponse, Error>>,
    Args: FromRequest + 'static,
{
    get(path, door, in_time(handler))
}

/// Returns an endpoint for a `GET` whose response goes on until somebody ends it. It does not serve `HEAD`: its headers
/// would promise a body that nobody has begun.
fn stream<F, Args>(path: &'static str, door: Door, handler: F) -> Endpoint
where
    F: Handler<Args, Output = Result<HttpResponse, Error>>,
    Args: FromRequest + 'static,
{
    endpoint(Method::GET, path, door, in_time(handler))
}

/// Returns a handler that fails if its response does not begin in time.
fn in_time<F, Args>(handler: F) -> impl Handler<(Args,), Output = Result<HttpResponse, Error>>
where
    F: Handler<Args, Output = Result<HttpResponse, Error>>,
    Args: FromRequest + 'static,
{
    move |args: Args| {
        let response = timeout(READ_TIMEOUT, handler.call(args));
        async move { response.await.unwrap_or_else(|_| Err(read_took_too_long())) }
    }
}

fn read_took_too_long() -> Error {
    Error::outage(OutageKind::TooSlow, "a read took too long")
}

/// Returns a handler that waits for its turn to read.
///
/// Once it has its turn, the read goes on even if its client is gone, because its statement does. Otherwise clients that
/// give up and ask again would have any number of statements at the database.
fn in_turn<F, Args>(handler: F) -> impl Handler<(web::Data<Engine>, Reader, Args), Output = Result<HttpResponse, Error>>
where
    F: Handler<Args, Output = Result<HttpResponse, Error>>,
    Args: FromRequest + 'static,
{
    move |engine: web::Data<Engine>, Reader(namespace): Reader, args: Args| {
        let handler = handler.clone();
        async move {
            let turn = match namespace {
                Some(namespace) => Some(engine.read_turns().turn(namespace).await?),
                None => None,
            };
            let read = async move {
                let response = timeout(READ_TIMEOUT, handler.call(args)).await;
                match (turn, &response) {
                    (Some(turn), Err(_)) => turn.outlast_statement().await,
                    // A part of the read was given up, whose statement may still run. Its caller need not wait for that.
                    (Some(turn), Ok(Err(error))) if error.is_outage(OutageKind::TooSlow) => {
                        drop(rt::spawn(turn.outlast_statement()));
                    }
                    (None, _) | (Some(_), Ok(Err(Error::Unavailable(_)))) => {}
                    (Some(turn), Ok(_)) => turn.note_answer(),
                }
                response.unwrap_or_else(|_| Err(read_took_too_long()))
            };
            to_its_end(read).await
        }
    }
}

/// Runs a read in a task of its own, which goes on if nobody waits for it any more. Its log lines carry the id of the
/// request.
async fn to_its_end(read: impl Future<Output = Result<HttpResponse, Error>> + 'static) -> Result<HttpResponse, Error> {
    let task = match REQUEST_ID.try_with(String::clone) {
        Ok(id) => rt::spawn(REQUEST_ID.scope(id, read)),
        Err(_) => rt::spawn(read),
    };
    task.await.unwrap_or_else(|panic| Err(Error::Internal(format!("a read panicked: {panic}"))))
}

async fn no_such_path(request: HttpRequest) -> HttpResponse {
    // `OPTIONS *` is about the server as a whole (RFC 9110, 9.3.7).
    if request.method() == Method::OPTIONS && request.path() == "*" {
        return options(ALL_METHODS.into());
    }
    Problem::new(Code::RouteNotFound, format!("there is no {}", request.path())).respond()
}

async fn other_method(request: HttpRequest, allow: String) -> HttpResponse {
    if request.method() == Method::OPTIONS {
        return options(allow);
    }
    let mut response = Problem::new(Code::MethodNotAllowed, format!("allowed here: {allow}")).respond();
    if let Ok(value) = header::HeaderValue::from_str(&allow) {
        response.headers_mut().insert(header::ALLOW, value);
    }
    response
}

/// Responds to `OPTIONS`. Without CORS headers, a browser does not let pages of other origins send
/// requests that need a preflight.
fn options(allow: String) -> HttpResponse {
    HttpResponse::NoContent().insert_header((header::ALLOW, allow)).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix_web::test]
    async fn a_read_that_panics_is_an_internal_error() {
        async fn panicking() -> Result<HttpResponse, Error> {
            panic!("on purpose")
        }
        let outcome = to_its_end(panicking()).await;
        assert!(matches!(outcome, Err(Error::Internal(_))), "{outcome:?}");
    }

    #[actix_web::test]
    async fn a_read_whose_client_is_gone_goes_on_and_keeps_the_id_of_its_request() {
        let (begin, begun) = tokio::sync::oneshot::channel::<()>();
        let (end, ended) = tokio::sync::oneshot::channel();
        let read = to_its_end(async move {
            let _ = begun.await;
            let _ = end.send(REQUEST_ID.with(String::clone));
            Ok(HttpResponse::Ok().finish())
        });
        let mut read = Box::pin(REQUEST_ID.scope("the-request".to_owned(), read));
        assert!(futures_util::poll!(&mut read).is_pending());
        drop(read);
        begin.send(()).expect("it still reads");
        assert_eq!(ended.await.as_deref(), Ok("the-request"));
    }
}
