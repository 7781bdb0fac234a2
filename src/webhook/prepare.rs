//! Checks a [`WebhookRequest`] and converts it into a request of `reqwest`.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};

use crate::domain::address::{self, AllowList};
use crate::domain::attempt::ErrorKind;

use super::exchange::{SendError, WebhookRequest};

/// Headers that frame the message or control the connection. Callers must not set them.
const FRAMING: &[&str] =
    &["connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// Checks a request, including the address in its URL, and converts it.
pub(super) fn prepare(request: WebhookRequest, allow: &AllowList) -> Result<Request, SendError> {
    let refused = |why: String| SendError::new(ErrorKind::AddressRefused, &format!("the URL {why}"));
    address::check_url(&request.url, allow).map_err(refused)?;
    let url = Url::parse(&request.url).map_err(|why| refused(format!("is not valid: {why}")))?;
    let method =
        Method::from_bytes(request.method.as_bytes()).map_err(|_| invalid("the method is not an HTTP method"))?;
    let mut prepared = Request::new(method, url);
    *prepared.headers_mut() = headers(&request.headers)?;
    *prepared.body_mut() = Some(request.body.into());
    Ok(prepared)
}

fn headers(headers: &[(String, String)]) -> Result<HeaderMap, SendError> {
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid("a header has an invalid name"))?;
        if FRAMING.contains(&header.as_str()) {
            return Err(invalid(&format!("the header {name} must not be set")));
        }
        let value = HeaderValue::from_bytes(value.as_bytes());
        map.append(header, value.map_err(|_| invalid(&format!("the header {name} has an invalid value")))?);
    }
    Ok(map)
}

fn invalid(what: &str) -> SendError {
    SendError::new(ErrorKind::BodyNotRenderable, what)
}
