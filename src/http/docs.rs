//! `/openapi.yaml` and `/docs`: the contract, for machines and for people. Everything that
//! the page needs is in the binary; it asks nobody on the internet, and the browser is told
//! not to let it.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};

use super::query::expect_no_query;
use crate::error::Error;

/// The contract.
pub const OPENAPI: &str = include_str!("../../openapi.yaml");

/// The page. Its settings are data, not script, so that no inline script need be allowed.
const PAGE: &str = include_str!("docs.html");

/// Only this server, for everything. The viewer writes its style sheet into the page, hence
/// the inline styles; icons and fonts come with it as `data:`.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; font-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /`: there is no page of its own yet.
pub async fn root(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    Ok(HttpResponse::Found().insert_header((header::LOCATION, "/docs")).finish())
}

/// `GET /openapi.yaml`.
pub async fn openapi(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    Ok(HttpResponse::Ok().content_type("application/yaml").body(OPENAPI))
}

/// `GET /docs`.
pub async fn page(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    Ok(HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .body(PAGE))
}

/// `GET /docs/scalar.js`.
pub async fn script(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    let script = scalar_api_reference::get_asset("scalar.js")
        .ok_or_else(|| Error::Internal("the documentation's script is missing".into()))?;
    Ok(HttpResponse::Ok()
        .content_type("text/javascript; charset=utf-8")
        .insert_header((header::CACHE_CONTROL, "max-age=86400"))
        .body(script))
}
