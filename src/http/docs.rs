//! `/openapi.yaml` and `/docs`: the contract, for machines and for people. The binary contains
//! everything that the page needs, and the content security policy forbids requests to other hosts.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};

use super::query::expect_no_query;
use crate::error::Error;

pub const OPENAPI: &str = include_str!("../../openapi.yaml");

/// The documentation page. Its settings are data attributes, because the policy forbids inline scripts.
const PAGE: &str = include_str!("docs.html");

/// Allows resources of this server only. Inline styles are allowed because the viewer inserts its
/// style sheet into the page, and `data:` because it embeds its icons and fonts.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; font-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /`: redirects to `/docs`.
pub async fn root(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    Ok(HttpResponse::Found().insert_header((header::LOCATION, "/docs")).finish())
}

/// `GET /openapi.yaml`: returns the contract.
pub async fn openapi(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    Ok(HttpResponse::Ok().content_type("application/yaml").body(OPENAPI))
}

/// `GET /docs`: returns the documentation page.
pub async fn page(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    Ok(HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .body(PAGE))
}

/// `GET /docs/scalar.js`: returns the script of the documentation page.
pub async fn script(request: HttpRequest) -> Result<HttpResponse, Error> {
    expect_no_query(&request)?;
    let script = scalar_api_reference::get_asset("scalar.js")
        .ok_or_else(|| Error::Internal("the documentation's script is missing".into()))?;
    Ok(HttpResponse::Ok()
        .content_type("text/javascript; charset=utf-8")
        .insert_header((header::CACHE_CONTROL, "max-age=86400"))
        .body(script))
}
