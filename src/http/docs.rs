//! `/openapi.yaml`, `/openapi.json` and `/docs`: the contract, for machines and for people. The binary contains
//! everything that the page needs, and the content security policy forbids requests to other hosts.

use std::sync::LazyLock;

use actix_web::http::header;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};

use super::openapi_json::to_json;
use super::page::{NO_SNIFF, html};
use super::query::expect_no_query;
use crate::error::Error;

pub const OPENAPI: &str = include_str!("../../openapi.yaml");

/// The contract as JSON, converted when it is first requested.
static OPENAPI_JSON: LazyLock<Result<Bytes, String>> = LazyLock::new(|| to_json(OPENAPI).map(Bytes::from));

/// The documentation page. Its settings are data attributes, because the policy forbids inline scripts.
const PAGE: &str = include_str!("docs.html");

/// Allows resources of this server only. Inline styles are allowed because the viewer inserts its
/// style sheet into the page, and `data:` because it embeds its icons and fonts.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; font-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /`: redirects to `/docs`.
pub(crate) async fn get_root(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    Ok(HttpResponse::Found().insert_header((header::LOCATION, "/docs")).finish())
}

/// `GET /openapi.yaml`: returns the contract.
pub(crate) async fn get_openapi_yaml(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    Ok(HttpResponse::Ok().content_type("application/yaml").insert_header(NO_SNIFF).body(OPENAPI))
}

/// `GET /openapi.json`: returns the contract as JSON.
pub(crate) async fn get_openapi_json(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    let document = OPENAPI_JSON.as_ref().map_err(|error| Error::Internal(error.clone()))?;
    Ok(HttpResponse::Ok().content_type("application/json").insert_header(NO_SNIFF).body(document.clone()))
}

/// `GET /docs`: returns the documentation page.
pub(crate) async fn get_docs(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    Ok(html(&request, POLICY).body(PAGE))
}

/// `GET /docs/scalar.js`: returns the script of the documentation page.
pub(crate) async fn get_docs_script(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    let script = scalar_api_reference::get_asset("scalar.js")
        .ok_or_else(|| Error::Internal("the documentation's script is missing".into()))?;
    Ok(HttpResponse::Ok()
        .content_type("text/javascript; charset=utf-8")
        .insert_header(NO_SNIFF)
        .insert_header((header::CACHE_CONTROL, "max-age=86400"))
        .body(script))
}
