//! Reads request bodies, with a check of their type and a limit on their size.

use std::num::IntErrorKind;
use std::time::Duration;

use actix_web::http::{Version, header};
use actix_web::web::{Bytes, BytesMut, Payload};
use actix_web::{FromRequest as _, HttpRequest};
use futures_util::StreamExt;

use super::doors::admit_again;
use super::memory::{RequestMemory, SMALL_BODY, Share};
use super::query::expect_no_query;
use crate::domain::input::RawFields;
use crate::domain::limits;
use crate::error::Error;

/// The maximum size of a body with one event: the largest payload, plus space for all other fields
/// at their limits, with every character escaped in 12 bytes.
pub(crate) const MAX_EVENT_BYTES: usize = limits::PAYLOAD_BYTES + 512 * 1024;

/// The maximum size of a body with a batch of events or settlements.
pub(crate) const MAX_BATCH_BYTES: usize = 16 * 1024 * 1024;

/// The time within which a body must arrive.
const TIMEOUT_SECONDS: u64 = 30;

/// A request body, with its share of the memory for bodies.
pub(crate) struct Body {
    bytes: Bytes,
    share: Share,
}

impl Body {
    /// Frees the bytes and keeps the share. For handlers that have copied what they need.
    pub(crate) fn into_share(self) -> Share {
        self.share
    }
}

impl std::ops::Deref for Body {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a JSON body of at most `limit` bytes.
pub(crate) async fn read_json(request: &HttpRequest, payload: Payload, limit: usize) -> Result<Body, Error> {
    if !is_json(request) {
        return Err(Error::UnsupportedMediaType);
    }
    read(request, payload, limit).await
}

/// Reads a JSON body of at most `limit` bytes, and refuses query parameters.
pub(crate) async fn read_json_without_query(
    request: &HttpRequest,
    payload: Payload,
    limit: usize,
) -> Result<Body, Error> {
    expect_no_query(request)?;
    read_json(request, payload, limit).await
}

/// Reads a body of any type, of at most `limit` bytes, and refuses query parameters.
pub(crate) async fn read_without_query(request: &HttpRequest, payload: Payload, limit: usize) -> Result<Body, Error> {
    expect_no_query(request)?;
    read(request, payload, limit).await
}

/// Reads a body of any type of at most `limit` bytes.
pub(crate) async fn read_any(request: &HttpRequest, payload: Payload, limit: usize) -> Result<Body, Error> {
    read(request, payload, limit).await
}

/// Reads a JSON body of at most `limit` bytes, which may be left out, and refuses query parameters. Returns an
/// empty body if there is none.
pub(crate) async fn read_optional_json(request: &HttpRequest, payload: Payload, limit: usize) -> Result<Body, Error> {
    expect_no_query(request)?;
    let body = read(request, payload, limit).await?;
    if body.is_empty() || is_json(request) { Ok(body) } else { Err(Error::UnsupportedMediaType) }
}

/// Refuses query parameters and a body.
pub(crate) async fn expect_no_input(request: &HttpRequest, payload: Payload) -> Result<(), Error> {
    expect_no_query(request)?;
    expect_empty_body(request, payload).await
}

/// Refuses a body that has fields. Endpoints that take their parameters from the query use this:
/// if they ignored the body, `{"dry_run":true}` sent there would cause a real run.
pub(crate) async fn expect_empty_body(request: &HttpRequest, payload: Payload) -> Result<(), Error> {
    let body = read(request, payload, MAX_EVENT_BYTES).await?;
    if body.is_empty() {
        return Ok(());
    }
    if !is_json(request) {
        return Err(Error::UnsupportedMediaType);
    }
    Ok(RawFields::of_body(&body)?.finish()?)
}

async fn read(request: &HttpRequest, payload: Payload, limit: usize) -> Result<Body, Error> {
    if is_encoded(request) {
        return Err(Error::ContentEncoding);
    }
    let too_large = || Error::TooLarge { field: "body".into(), limit };
    let length = declared_length(request);
    if length.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let memory = RequestMemory::of(request)?;
    let mut reading = Reading { payload, bytes: BytesMut::with_capacity(length.unwrap_or(0).min(SMALL_BODY)) };
    let reader = reading.read(memory, length.unwrap_or(limit), limit);
    match tokio::time::timeout(Duration::from_secs(TIMEOUT_SECONDS), reader).await {
        Ok(Ok(Some(share))) => {
            admit_again(request).await?;
            Ok(Body { bytes: reading.bytes.freeze(), share })
        }
        Ok(Ok(None)) => Err(too_large()),
        Ok(Err(error)) => {
            // A client that is still sending would see a reset connection instead of the response.
            Box::pin(discard(reading.payload)).await;
            Err(error)
        }
        Err(_) => Err(Error::BodyTimeout(TIMEOUT_SECONDS)),
    }
}

struct Reading {
    payload: Payload,
    bytes: BytesMut,
}

impl Reading {
    /// Reads a body of up to `size` bytes. Returns `None` if it has more than `limit` bytes.
    ///
    /// The share of the memory is taken once more than [`SMALL_BODY`] bytes have arrived, or at the
    /// end of the body. A client that declares a length and sends nothing therefore takes no memory.
    async fn read(&mut self, memory: &RequestMemory, size: usize, limit: usize) -> Result<Option<Share>, Error> {
        let mut share = None;
        while let Some(chunk) = self.payload.next().await {
            let chunk = chunk.map_err(|error| Error::MalformedJson(format!("the body ended early: {error}")))?;
            let length = self.bytes.len() + chunk.len();
            if length > limit {
                return Ok(None);
            }
            if length > SMALL_BODY && share.is_none() {
                share = Some(memory.take(size).await?);
                self.bytes.reserve(size.saturating_sub(self.bytes.len()));
            }
            self.bytes.extend_from_slice(&chunk);
        }
        let mut share = match share {
            Some(share) => share,
            None => memory.take(self.bytes.len()).await?,
        };
        share.shrink(self.bytes.len());
        Ok(Some(share))
    }
}

/// Reads and drops the remaining body, for at most [`TIMEOUT_SECONDS`].
async fn discard(mut payload: Payload) {
    let discarding = async { while let Some(Ok(_)) = payload.next().await {} };
    let _ = tokio::time::timeout(Duration::from_secs(TIMEOUT_SECONDS), discarding).await;
}

/// Returns the length that the headers declare: 0 if there is no body, `None` if it is unknown.
fn declared_length(request: &HttpRequest) -> Option<usize> {
    match request.headers().get(header::CONTENT_LENGTH) {
        Some(length) => length.to_str().ok()?.trim().parse().ok(),
        None if request.headers().contains_key(header::TRANSFER_ENCODING) => None,
        // HTTP/2 marks the end of a body, with or without a declared length.
        None if request.version() == Version::HTTP_2 => None,
        None => Some(0),
    }
}

/// Returns whether the body has a `Content-Encoding` other than `identity`.
fn is_encoded(request: &HttpRequest) -> bool {
    let mut encodings = request.headers().get_all(header::CONTENT_ENCODING);
    encodings.any(|encoding| !encoding.is_empty() && !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn is_json(request: &HttpRequest) -> bool {
    media_type(request).eq_ignore_ascii_case("application/json")
}

/// Returns the content type of a request without its parameters, or nothing if there is none.
pub(crate) fn media_type(request: &HttpRequest) -> &str {
    let value = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// Reads the id of a path such as `/events/{id}`. Larger numbers than any id are read too, and not
/// found.
pub(crate) async fn path_id<Id: From<i64>>(request: &HttpRequest) -> Result<Id, Error> {
    let text = actix_web::web::Path::<String>::extract(request).await;
    let is_plain = |text: &String| text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let text = text.ok().map(actix_web::web::Path::into_inner).filter(is_plain);
    let id = text.and_then(|text| match text.parse::<i64>() {
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Some(i64::MAX),
        parsed => parsed.ok(),
    });
    id.filter(|id| *id > 0).map(Id::from).ok_or_else(|| Error::invalid("id", "must be a positive integer"))
}
