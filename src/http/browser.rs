//! Refuses requests that a browser sends on behalf of a foreign page.
//!
//! A browser sends requests for every page that it shows. On a server without API keys no login would tell the
//! pages apart, and with a session its cookie must not serve other pages. Two checks tell them apart. First, the
//! host must be one of this server's ([`crate::domain::hosts`]). Otherwise a page whose own host name resolves to this server (DNS
//! rebinding) could read and write everything. Second, a write must not come from a page of another
//! origin. Programs are not affected by the second check: they send neither `Origin` nor
//! `Sec-Fetch-Site`.
//!
//! Both checks run before the body is read and allocate nothing.

use actix_web::HttpRequest;
use actix_web::dev::ServiceRequest;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{Method, header};
use actix_web::web::Data;

use super::code::Code;
use super::problem::Problem;
use crate::domain::hosts::AllowedHosts;

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
static SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Load balancers request these paths with host names of their own. Their responses hold nothing secret.
const PROBES: [&str; 2] = ["/health", "/ready"];

/// Returns the reason to refuse a request, or `None` if it is allowed.
pub(crate) fn refusal(request: &ServiceRequest) -> Option<Problem> {
    if !is_for_this_server(request) {
        let detail = "the request is for a host that is not this server's; --allowed-hosts names its hosts";
        return Some(Problem::new(Code::HostNotAllowed, detail));
    }
    if has_effect(request.request()) && is_from_foreign_page(request) {
        return Some(Problem::new(Code::OriginNotAllowed, "pages of another origin cannot write to this server"));
    }
    if has_effect(request.request()) && is_followed_link(request) {
        return Some(Problem::new(Code::OriginNotAllowed, "a link claims no work; send the request by a program"));
    }
    None
}

fn is_for_this_server(request: &ServiceRequest) -> bool {
    let Some(allowed) = request.app_data::<Data<AllowedHosts>>() else { return false };
    // The host in the request target takes precedence over `Host` (RFC 9112, 3.2.2).
    if let Some(authority) = request.uri().authority() {
        return allowed.allow(authority.as_str()) || is_probe(request);
    }
    // Browsers always send `Host`. A client that does not uses HTTP/1.0 or is not a browser.
    let Some(host) = request.headers().get(header::HOST).filter(|host| !host.is_empty()) else { return true };
    host.to_str().is_ok_and(|host| allowed.allow(host)) || is_probe(request)
}

fn is_probe(request: &ServiceRequest) -> bool {
    PROBES.contains(&request.path())
}

/// Returns whether a request changes anything. One `GET` does: an image on any page could claim work with it. The path
/// is the one that the router matches, with escapes decoded: `/events/%73ubscribe` claims as well.
pub(crate) fn has_effect(request: &HttpRequest) -> bool {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    !is_read || request.match_info().as_str() == "/events/subscribe"
}

/// Returns whether a browser says which page a request comes from, so that the check of its origin was a real one.
/// Browsers that know neither header may not know `SameSite` of cookies either.
pub(crate) fn names_its_page(request: &HttpRequest) -> bool {
    request.headers().contains_key(&SEC_FETCH_SITE) || request.headers().contains_key(header::ORIGIN)
}

/// Returns whether a browser was led here by a page of another site, for which it sends no cookie of a session.
pub(crate) fn is_led_from_elsewhere(request: &HttpRequest) -> bool {
    request.headers().get(&SEC_FETCH_SITE).is_some_and(|site| matches!(site.as_bytes(), b"cross-site" | b"same-site"))
}

/// Returns whether a request comes from a page of another origin. `Sec-Fetch-Site` decides if it is
/// present. Older browsers, and all browsers on pages without TLS, send only `Origin`.
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

/// Returns whether a browser opens an address, be it typed or a link, also one of another program. No page of this
/// server claims like that. Forms of pages navigate, too, but with `POST`.
fn is_followed_link(request: &ServiceRequest) -> bool {
    let mode = request.headers().get(&SEC_FETCH_MODE);
    *request.method() == Method::GET && mode.is_some_and(|mode| mode.as_bytes() == b"navigate")
}

/// Returns whether an origin (`https://queue.example:8443`) has this host. The scheme is ignored,
/// because a proxy may terminate TLS.
fn is_origin_of(host: &[u8], origin: &[u8]) -> bool {
    let after_scheme = origin.strip_prefix(b"https://").or_else(|| origin.strip_prefix(b"http://"));
    after_scheme.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}
