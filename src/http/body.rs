//! Reading a request's body: of the right type, and of bounded size.

use std::time::Duration;

use actix_web::http::header;
use actix_web::web::{Bytes, Payload};
use actix_web::{FromRequest as _, HttpRequest};

use super::fields::Fields;
use super::query::Query;
use crate::domain::limits;
use crate::error::Error;

/// One event: a payload of the largest size, and room for everything around it, even if all of
/// it is at its limit and spelled in escapes of twelve bytes per character.
pub const ONE_EVENT: usize = limits::PAYLOAD_BYTES + 512 * 1024;

/// A batch of events or settlements.
pub const BATCH: usize = 16 * 1024 * 1024;

/// How long a body may take to arrive.
const READ_SECONDS: u64 = 30;

/// Reads a JSON body of at most `limit` bytes.
pub async fn read_json(request: &HttpRequest, payload: Payload, limit: usize) -> Result<Bytes, Error> {
    if !is_json(request) {
        return Err(Error::UnsupportedMediaType);
    }
    read(payload, limit).await
}

/// The same of a call that takes nothing in its query.
pub async fn read_only_json(request: &HttpRequest, payload: Payload, limit: usize) -> Result<Bytes, Error> {
    Query::of(request)?.finish()?;
    read_json(request, payload, limit).await
}

/// Insists that a call brings nothing at all.
pub async fn read_bare(request: &HttpRequest, payload: Payload) -> Result<(), Error> {
    Query::of(request)?.finish()?;
    read_nothing(request, payload).await
}

/// Insists that a call whose parameters go into the query brings none in its body, where they
/// would be dropped without a word: `{"dry_run":true}` must not become a wet run.
pub async fn read_nothing(request: &HttpRequest, payload: Payload) -> Result<(), Error> {
    let body = read(payload, ONE_EVENT).await?;
    if body.is_empty() {
        return Ok(());
    }
    if !is_json(request) {
        return Err(Error::UnsupportedMediaType);
    }
    Fields::of_body(&body)?.finish()
}

async fn read(payload: Payload, limit: usize) -> Result<Bytes, Error> {
    let reading = tokio::time::timeout(Duration::from_secs(READ_SECONDS), payload.to_bytes_limited(limit));
    match reading.await {
        Ok(Ok(Ok(bytes))) => Ok(bytes),
        Ok(Ok(Err(error))) => Err(Error::MalformedJson(format!("the body ended early: {error}"))),
        Ok(Err(_)) => Err(Error::TooLarge { field: "body".into(), limit }),
        Err(_) => Err(Error::BodyTimeout(READ_SECONDS)),
    }
}

fn is_json(request: &HttpRequest) -> bool {
    let Some(value) = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Reads the id of a path such as `/events/{id}`.
pub async fn path_id(request: &HttpRequest) -> Result<i64, Error> {
    let text = actix_web::web::Path::<String>::extract(request).await;
    let id = text.ok().and_then(|text| text.parse::<i64>().ok()).filter(|id| *id > 0);
    id.ok_or_else(|| Error::invalid("id", "must be a positive 64-bit integer"))
}
