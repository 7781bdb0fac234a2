//! `/health` and `/ready`.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use super::query::Query;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::migrate::pending;

/// `GET /health`: the process is alive. Asks nobody.
pub async fn health(request: HttpRequest) -> Result<HttpResponse, Error> {
    Query::of(&request)?.finish()?;
    Ok(HttpResponse::Ok().json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") })))
}

/// `GET /ready`: the database answers and its schema is this version's.
pub async fn ready(engine: Data<Engine>, request: HttpRequest) -> Result<HttpResponse, Error> {
    Query::of(&request)?.finish()?;
    let mut conn = engine.database.connection().await?;
    match pending(&mut conn).await? {
        0 => Ok(HttpResponse::Ok().json(json!({ "status": "ready" }))),
        count => Err(Error::Unavailable(format!("{count} migrations have not run"))),
    }
}
