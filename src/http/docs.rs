//! `/openapi.yaml` and `/docs`: the contract, for machines and for people. Everything that
//! the page needs is in the binary; it asks nobody on the internet.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use super::query::Query;
use crate::error::Error;

/// The contract.
pub const OPENAPI: &str = include_str!("../../openapi.yaml");

/// `GET /openapi.yaml`.
pub async fn openapi(request: HttpRequest) -> Result<HttpResponse, Error> {
    Query::of(&request)?.finish()?;
    Ok(HttpResponse::Ok().content_type("application/yaml").body(OPENAPI))
}

/// `GET /docs`.
pub async fn page(request: HttpRequest) -> Result<HttpResponse, Error> {
    Query::of(&request)?.finish()?;
    let config = json!({
        "url": "/openapi.yaml",
        "agent": { "disabled": true },
        "proxyUrl": "",
        "withDefaultFonts": false,
        "telemetry": false,
        "hideClientButton": true,
    });
    Ok(HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .body(scalar_api_reference::scalar_html(&config, Some("/docs/scalar.js"))))
}

/// `GET /docs/scalar.js`.
pub async fn script(request: HttpRequest) -> Result<HttpResponse, Error> {
    Query::of(&request)?.finish()?;
    let script = scalar_api_reference::get_asset("scalar.js")
        .ok_or_else(|| Error::Internal("the documentation's script is missing".into()))?;
    Ok(HttpResponse::Ok()
        .content_type("text/javascript; charset=utf-8")
        .insert_header((header::CACHE_CONTROL, "max-age=86400"))
        .body(script))
}
