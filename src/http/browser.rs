//! What a browser must not do for somebody else's page.
//!
//! A browser sends the requests of every page, and while nobody has to log in, it makes no
//! difference whose page that is. Two checks make one. The host must be this server's
//! ([`crate::domain::hosts`]), or a page whose name was pointed at this server could read and
//! write everything. And a write must not come from a page of another origin. Programs are not
//! affected by the second: they send neither `Origin` nor `Sec-Fetch-Site`.
//!
//! Both are decided before the body is read, without an allocation.

use actix_web::dev::ServiceRequest;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{Method, header};
use actix_web::web::Data;

use super::problem::{Code, Problem};
use crate::domain::hosts::AllowedHosts;

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Load balancers ask for these under names of their own. They tell nothing worth hiding.
const PROBES: [&str; 2] = ["/health", "/ready"];

/// Returns why a request is refused, if it is.
pub fn refusal(request: &ServiceRequest) -> Option<Problem> {
    if !is_for_this_server(request) {
        let detail = "the request is for a host that is not this server's; --allowed-hosts names its hosts";
        return Some(Problem::new(Code::HostNotAllowed, detail));
    }
    if has_effect(request) && is_from_foreign_page(request) {
        return Some(Problem::new(Code::OriginNotAllowed, "pages of another origin cannot write to this server"));
    }
    None
}

fn is_for_this_server(request: &ServiceRequest) -> bool {
    let Some(allowed) = request.app_data::<Data<AllowedHosts>>() else { return false };
    // The target's own host comes first (RFC 9112, 3.2.2).
    if let Some(authority) = request.uri().authority() {
        return allowed.allow(authority.as_str()) || is_probe(request);
    }
    // Browsers always name a host. Who names none speaks HTTP/1.0, or is no browser.
    let Some(host) = request.headers().get(header::HOST).filter(|host| !host.is_empty()) else { return true };
    host.to_str().is_ok_and(|host| allowed.allow(host)) || is_probe(request)
}

fn is_probe(request: &ServiceRequest) -> bool {
    PROBES.contains(&request.path())
}

/// Whether a request changes anything. One `GET` does: an image on any page could claim work.
fn has_effect(request: &ServiceRequest) -> bool {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    !is_read || request.path() == "/events/subscribe"
}

/// The browser's own word counts most. Older browsers, and all of them on pages without TLS, say
/// only where the page is from.
fn is_from_foreign_page(request: &ServiceRequest) -> bool {
    let headers = request.headers();
    if let Some(site) = headers.get(&SEC_FETCH_SITE) {
        return !matches!(site.as_bytes(), b"same-origin" | b"none");
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let host = match request.uri().authority() {
        Some(authority) => Some(authority.as_str().as_bytes()),
        None => headers.get(header::HOST).map(HeaderValue::as_bytes),
    };
    !host.is_some_and(|host| is_origin_of(host, origin.as_bytes()))
}

/// Whether an origin (`https://queue.example:8443`) names this host. The scheme may differ: TLS
/// ends at a proxy.
fn is_origin_of(host: &[u8], origin: &[u8]) -> bool {
    let after_scheme = origin.strip_prefix(b"https://").or_else(|| origin.strip_prefix(b"http://"));
    after_scheme.is_some_and(|named| named.eq_ignore_ascii_case(host))
}
