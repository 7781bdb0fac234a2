//! What somebody gets who may not see a page, or whose page cannot be shown.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};
use maud::html;

use super::filter_fields::reasons;
use super::{next, plain};
use crate::error::Error;
use crate::http::browser::is_led_from_elsewhere;
use crate::http::problem::code_of;

/// Returns the response to a request for a page that is refused. Without a good session that is the login, which leads
/// back to the page.
pub(crate) fn refuse_page(request: &HttpRequest, error: &Error) -> HttpResponse {
    let mut response = match error {
        // Somebody who has not logged in yet has not tried anything.
        Error::Unauthenticated(_) | Error::KeyExpired | Error::KeyRevoked => return lead_to_login(request),
        _ => explain(request, error),
    };
    // For the metrics and the log.
    response.extensions_mut().insert(code_of(error));
    response
}

fn lead_to_login(request: &HttpRequest) -> HttpResponse {
    let target = request.uri().path_and_query().map_or(next::HOME, |target| target.as_str());
    // A link on another site does not bring the cookie along. This server's own page asks again, and does.
    if is_led_from_elsewhere(request) && next::checked(Some(target)) == target {
        return plain::begin(request, StatusCode::OK).body(plain::leading_to(target));
    }
    plain::see_other(&next::login_path(target))
}

fn explain(request: &HttpRequest, error: &Error) -> HttpResponse {
    let code = code_of(error);
    let info = code.info();
    // The cause of an error of the server is for its log.
    let detail = if code.status().is_server_error() { info.meaning.to_owned() } else { format!("{}.", reasons(error)) };
    let content = html! {
        p.problem role="alert" { (detail) }
        @if let Error::ScopeMissing(scope) = error {
            p { "This page needs a key with the scope " code { (scope) } "." }
            p { a href="/login" { "Log in with another key" } }
        }
        p { a href=(next::HOME) { "Go to the first page" } }
    };
    plain::begin_refusal(request, error).body(plain::document(info.title, &content))
}
