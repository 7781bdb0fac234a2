//! The middleware around every request: `X-Request-ID`, the browser checks, the request log, and the span of the request.
//!
//! The id is taken from the request or generated, is returned in the response and is part of every
//! log line of the request. Each request is measured ([`super::request_log`]), also if [`browser`] refuses it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;

use super::browser;
use super::connection::RequestState;
use super::page::NO_SNIFF;
use super::request_log::{RequestLog, logged_path};
use super::spans::RequestSpan;
use crate::logging::REQUEST_ID;

static HEADER: HeaderName = HeaderName::from_static("x-request-id");

const MAX_LENGTH: usize = 128;

/// Handles one request.
pub(crate) async fn follow_request(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let id = received_id(&request).unwrap_or_else(generate_id);
    let log = RequestLog::begin(&request);
    // Until this is dropped, with the response, the connection holds back the next request.
    let _guard = RequestState::guard(&request);
    let span = RequestSpan::begin(&request, &id, logged_path);
    REQUEST_ID
        .scope(id.clone(), async move {
            let mut response = match browser::refusal(&request) {
                Some(problem) => request.into_response(problem.respond()).map_into_right_body(),
                None => next.call(request).await?.map_into_left_body(),
            };
            if let Ok(value) = HeaderValue::from_str(&id) {
                response.headers_mut().insert(HEADER.clone(), value);
            }
            // Whatever it is, a browser must take it for nothing else.
            let (name, value) = NO_SNIFF;
            response.headers_mut().insert(name, value);
            if let Some(span) = span {
                span.finish(&response);
            }
            log.end(&response);
            Ok(response)
        })
        .await
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
