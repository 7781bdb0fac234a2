//! Pages for people, with the headers that limit what a browser does with them.

use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};

use crate::domain::hosts::AllowedHosts;

/// Tells a browser to use only TLS for this host, for a year.
const STRICT_TRANSPORT: &str = "max-age=31536000";

static CROSS_ORIGIN_OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// A browser must not guess another type than that of the response.
pub(crate) const NO_SNIFF: (HeaderName, HeaderValue) =
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

/// Whether this server serves TLS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServesTls(pub bool);

/// Returns the beginning of a response with an HTML page. The policy must begin with `default-src 'none'`,
/// and name all that the page needs.
pub(crate) fn html(request: &HttpRequest, policy: &str) -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
        // Other sites learn nothing. `no-referrer` would also make browsers hide the origin of forms, which then look as
        // if they came from a page of another site.
        .insert_header((header::REFERRER_POLICY, "same-origin"))
        .insert_header(NO_SNIFF)
        // For browsers that do not know `frame-ancestors`.
        .insert_header((header::X_FRAME_OPTIONS, "DENY"))
        .insert_header((CROSS_ORIGIN_OPENER_POLICY.clone(), "same-origin"));
    if demands_tls(request) {
        response.insert_header((header::STRICT_TRANSPORT_SECURITY, STRICT_TRANSPORT));
    }
    response
}

/// Returns whether browsers may be told to use only TLS. The demand holds for all ports of a host, so it is
/// made only for names that the operator has given to this server: never for `localhost`.
fn demands_tls(request: &HttpRequest) -> bool {
    let serves_tls = request.app_data::<Data<ServesTls>>().is_some_and(|tls| tls.0);
    let Some(hosts) = request.app_data::<Data<AllowedHosts>>().filter(|_| serves_tls) else { return false };
    if let Some(authority) = request.uri().authority() {
        return hosts.is_configured(authority.as_str());
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    host.is_some_and(|host| hosts.is_configured(host))
}
