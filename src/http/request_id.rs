//! The middleware around every request: `X-Request-ID`, the browser checks, and the request log.
//!
//! The id is taken from the request or generated, is returned in the response and is part of every
//! log line of the request. Each request is logged in one line, also if [`browser`] refuses it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;

use super::browser;
use super::client_address::ClientAddress;
use super::connection::RequestState;
use crate::logging::REQUEST_ID;

static HEADER: HeaderName = HeaderName::from_static("x-request-id");

const MAX_LENGTH: usize = 128;

/// Handles one request.
pub(crate) async fn follow_request(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let id = received_id(&request).unwrap_or_else(generate_id);
    let started = Instant::now();
    // Until this is dropped, with the response, the connection holds back the next request.
    let _guard = RequestState::guard(&request);
    let logged = log::log_enabled!(log::Level::Debug)
        .then(|| (request.method().clone(), logged_path(&request), ClientAddress::of(request.request())));
    REQUEST_ID
        .scope(id.clone(), async move {
            let mut response = match browser::refusal(&request) {
                Some(problem) => request.into_response(problem.respond()).map_into_right_body(),
                None => next.call(request).await?.map_into_left_body(),
            };
            if let Ok(value) = HeaderValue::from_str(&id) {
                response.headers_mut().insert(HEADER.clone(), value);
            }
            if let Some((method, path, client)) = logged {
                let status = response.status().as_u16();
                let ms = started.elapsed().as_millis() as u64;
                log::debug!(method = method.as_str(), path = path.as_str(), client:%, status, ms; "request");
            }
            Ok(response)
        })
        .await
}

/// Returns the path of a request without what is secret in it: the token of a source. It is recognised in the path that
/// the router matches, with escapes decoded.
fn logged_path(request: &ServiceRequest) -> String {
    match request.match_info().as_str().strip_prefix("/in/") {
        Some(_) => "/in/…".to_owned(),
        None => request.path().to_owned(),
    }
}

/// Returns the id in the request's header, if it is valid.
fn received_id(request: &ServiceRequest) -> Option<String> {
    let text = request.headers().get(&HEADER)?.to_str().ok()?;
    let is_valid = (1..=MAX_LENGTH).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_valid.then(|| text.to_owned())
}

/// Returns 16 hexadecimal digits that do not repeat within a process, and are unlikely to repeat in
/// another: a counter with a random start, mixed by the steps of SplitMix64, which are a bijection.
fn generate_id() -> String {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(getrandom::u64().unwrap_or_default()));
    let number = NEXT.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    format!("{:016x}", mixed ^ (mixed >> 31))
}
