//! From our terms to the library's, with what must be checked on the way.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};

use crate::domain::address::{self, AllowList};
use crate::domain::attempt::ErrorKind;

use super::exchange::{SendError, WebhookRequest};

/// Headers that frame the message or steer the connection; they are not for callers to set.
const FRAMING: &[&str] =
    &["connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// Checks a request, the address in its URL above all, and makes it ready to be sent.
pub(super) fn prepare(request: WebhookRequest, allow: &AllowList) -> Result<Request, SendError> {
    let refused = |why: String| SendError::new(ErrorKind::AddressRefused, &format!("the URL {why}"));
    address::check_url(&request.url, allow).map_err(refused)?;
    let url = Url::parse(&request.url).map_err(|why| refused(format!("is none: {why}")))?;
    let method = Method::from_bytes(request.method.as_bytes()).map_err(|_| wrong("the method is not one of HTTP"))?;
    let mut prepared = Request::new(method, url);
    *prepared.headers_mut() = headers(&request.headers)?;
    *prepared.body_mut() = Some(request.body.into());
    Ok(prepared)
}

fn headers(headers: &[(String, String)]) -> Result<HeaderMap, SendError> {
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("a header has a forbidden name"))?;
        if FRAMING.contains(&header.as_str()) {
            return Err(wrong(&format!("the header {name} is not for callers to set")));
        }
        let value = HeaderValue::from_bytes(value.as_bytes());
        map.append(header, value.map_err(|_| wrong(&format!("the header {name} has a forbidden value")))?);
    }
    Ok(map)
}

fn wrong(what: &str) -> SendError {
    SendError::new(ErrorKind::BodyNotRenderable, what)
}
