//! What surrounds the pages that belong to nobody: the login, and what somebody reads who may not enter.

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use maud::{DOCTYPE, Markup, html};

use super::assets;
use crate::error::Error;
use crate::http::page;
use crate::http::problem::code_of;

/// Allows the stylesheet and forms of this server, and nothing else.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Returns the beginning of a response with such a page. No copy of it is kept.
pub(super) fn begin(request: &HttpRequest, status: StatusCode) -> HttpResponseBuilder {
    let mut response = page::html(request, POLICY);
    response.status(status).insert_header((header::CACHE_CONTROL, "no-store"));
    response
}

/// Returns the beginning of a response with such a page about an error.
pub(super) fn begin_refusal(request: &HttpRequest, error: &Error) -> HttpResponseBuilder {
    let mut response = begin(request, code_of(error).status());
    if let Error::TooManyGuesses { retry_after } = error {
        response.insert_header((header::RETRY_AFTER, *retry_after));
    }
    response
}

/// Returns a page with one heading.
pub(super) fn document(title: &str, content: &Markup) -> String {
    with_head(title, &html! {}, content)
}

/// Returns a page that asks for `path` at once.
pub(super) fn leading_to(path: &str) -> String {
    let head = html! { meta http-equiv="refresh" content=(format!("0;url={path}")); };
    with_head("One moment", &head, &html! { p { a href=(path) { "Go on" } } })
}

fn with_head(title: &str, head: &Markup, content: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · Waybill" }
                link rel="stylesheet" href=(assets::path_of("plain.css"));
                (head)
            }
            body {
                main {
                    h1 { (title) }
                    (content)
                }
            }
        }
    };
    page.into_string()
}

/// Returns a response that leads to another path, with a `GET`.
pub(super) fn see_other(path: &str) -> HttpResponse {
    HttpResponse::SeeOther()
        .insert_header((header::LOCATION, path))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .finish()
}
