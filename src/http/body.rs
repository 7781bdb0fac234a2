//! Reading a request's body: of the right type, and of bounded size.

use std::time::Duration;

use actix_web::http::header;
use actix_web::web::{Bytes, BytesMut, Payload};
use actix_web::{FromRequest as _, HttpRequest};
use futures_util::StreamExt;

use super::memory::{RequestMemory, SMALL_BODY, Share};
use super::query::expect_no_query;
use crate::domain::input::RawFields;
use crate::domain::limits;
use crate::error::Error;

/// One event: a payload of the largest size, and room for everything around it, even if all of
/// it is at its limit and spelled in escapes of twelve bytes per character.
pub const ONE_EVENT: usize = limits::PAYLOAD_BYTES + 512 * 1024;

/// A batch of events or settlements.
pub const BATCH: usize = 16 * 1024 * 1024;

/// How long a body may take to arrive.
const READ_SECONDS: u64 = 30;

/// A body, with its share of the memory for bodies.
pub struct Body {
    bytes: Bytes,
    share: Share,
}

impl Body {
    /// Frees the bytes and keeps the share, for calls that have copied what they need.
    pub fn into_share(self) -> Share {
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
pub async fn read_json(request: &HttpRequest, payload: Payload, limit: usize) -> Result<Body, Error> {
    if !is_json(request) {
        return Err(Error::UnsupportedMediaType);
    }
    read(request, payload, limit).await
}

/// The same of a call that takes nothing in its query.
pub async fn read_only_json(request: &HttpRequest, payload: Payload, limit: usize) -> Result<Body, Error> {
    expect_no_query(request)?;
    read_json(request, payload, limit).await
}

/// Insists that a call brings nothing at all.
pub async fn read_bare(request: &HttpRequest, payload: Payload) -> Result<(), Error> {
    expect_no_query(request)?;
    read_nothing(request, payload).await
}

/// Insists that a call whose parameters go into the query brings none in its body, where they
/// would be dropped without a word: `{"dry_run":true}` must not become a wet run.
pub async fn read_nothing(request: &HttpRequest, payload: Payload) -> Result<(), Error> {
    let body = read(request, payload, ONE_EVENT).await?;
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
    let length = announced_length(request);
    if length.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let memory = request.app_data::<RequestMemory>().ok_or_else(|| Error::Internal("no memory for bodies".into()))?;
    let mut reading = Reading { payload, bytes: BytesMut::with_capacity(length.unwrap_or(0).min(SMALL_BODY)) };
    let reader = reading.read(memory, length.unwrap_or(limit), limit);
    match tokio::time::timeout(Duration::from_secs(READ_SECONDS), reader).await {
        Ok(Ok(Some(share))) => Ok(Body { bytes: reading.bytes.freeze(), share }),
        Ok(Ok(None)) => Err(too_large()),
        Ok(Err(error)) => {
            // A client that is still sending would see a reset connection instead of the answer.
            discard(reading.payload).await;
            Err(error)
        }
        Err(_) => Err(Error::BodyTimeout(READ_SECONDS)),
    }
}

/// A body that is being read.
struct Reading {
    payload: Payload,
    bytes: BytesMut,
}

impl Reading {
    /// Reads a body of up to `size` bytes. Its share of the memory is taken when it turns out to be
    /// large, or has arrived: who announces a body and does not send it takes nothing. Returns
    /// nothing if there are more bytes than `limit`.
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

/// Reads a body without keeping it, for as long as one may take to arrive.
async fn discard(mut payload: Payload) {
    let discarding = async { while let Some(Ok(_)) = payload.next().await {} };
    let _ = tokio::time::timeout(Duration::from_secs(READ_SECONDS), discarding).await;
}

/// Returns the length that the request announces: 0 if there is no body, `None` if it is not known.
fn announced_length(request: &HttpRequest) -> Option<usize> {
    match request.headers().get(header::CONTENT_LENGTH) {
        Some(length) => length.to_str().ok()?.trim().parse().ok(),
        None if request.headers().contains_key(header::TRANSFER_ENCODING) => None,
        None => Some(0),
    }
}

/// Whether the body is compressed, or otherwise not what it stands for.
fn is_encoded(request: &HttpRequest) -> bool {
    let mut encodings = request.headers().get_all(header::CONTENT_ENCODING);
    encodings.any(|encoding| !encoding.is_empty() && !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn is_json(request: &HttpRequest) -> bool {
    let Some(value) = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Reads the id of a path such as `/events/{id}`.
pub async fn path_id<Id: From<i64>>(request: &HttpRequest) -> Result<Id, Error> {
    let text = actix_web::web::Path::<String>::extract(request).await;
    let id = text.ok().and_then(|text| text.parse::<i64>().ok()).filter(|id| *id > 0);
    id.map(Id::from).ok_or_else(|| Error::invalid("id", "must be a positive 64-bit integer"))
}
