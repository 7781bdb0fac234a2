//! `X-Request-ID`: accepted or made, echoed, and on every log line of the request; and one
//! line per request in the log.

use std::time::Instant;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;

use crate::logging::REQUEST_ID;

static HEADER: HeaderName = HeaderName::from_static("x-request-id");

const MAX_LENGTH: usize = 128;

/// The middleware.
pub async fn follow_request(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let id = given(&request).unwrap_or_else(make);
    let started = Instant::now();
    let (method, path) = (request.method().clone(), request.path().to_owned());
    REQUEST_ID
        .scope(id.clone(), async move {
            let mut response = next.call(request).await?;
            if let Ok(value) = HeaderValue::from_str(&id) {
                response.headers_mut().insert(HEADER.clone(), value);
            }
            let status = response.status().as_u16();
            let ms = started.elapsed().as_millis() as u64;
            log::debug!(method = method.as_str(), path = path.as_str(), status, ms; "request");
            Ok(response)
        })
        .await
}

fn given(request: &ServiceRequest) -> Option<String> {
    let text = request.headers().get(&HEADER)?.to_str().ok()?;
    let is_fine = (1..=MAX_LENGTH).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_fine.then(|| text.to_owned())
}

fn make() -> String {
    format!("{:016x}", getrandom::u64().unwrap_or_default())
}
