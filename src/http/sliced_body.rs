//! A response body that is sent in slices.
//!
//! actix-http copies the bytes of a body into the connection's buffer, which never shrinks. A large
//! body in one piece would take its memory twice, and an idle connection would keep holding it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::http::StatusCode;
use actix_web::web::Bytes;
use serde::Serialize;

use super::memory::Share;
use crate::error::Error;

/// The number of bytes that are passed to actix-http at a time.
pub(crate) const SLICE: usize = 64 * 1024;

/// A body that is being sent.
pub(crate) struct SlicedBody {
    bytes: Bytes,
    /// The request's share of the memory for bodies. Kept because the response to a large request is
    /// often just as large.
    _share: Option<Share>,
}

impl SlicedBody {
    /// Returns a body that many responses may share.
    pub(crate) fn shared(bytes: Bytes) -> BoxBody {
        BoxBody::new(SlicedBody { bytes, _share: None })
    }
}

impl MessageBody for SlicedBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.bytes.len() as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.bytes.len().min(SLICE);
        Poll::Ready(Some(Ok(self.bytes.split_to(length))))
    }
}

/// Returns a response with a JSON body of about `size` bytes. A large body keeps the request's share
/// of the memory until it is sent.
pub(crate) fn respond_json(
    status: StatusCode,
    size: usize,
    view: &impl Serialize,
    share: Option<Share>,
) -> Result<HttpResponse, Error> {
    respond_bytes(status, to_bytes(size, view)?, share)
}

/// Returns a response with a serialised JSON body. A large body keeps the request's share of the
/// memory until it is sent.
pub(crate) fn respond_bytes(status: StatusCode, bytes: Vec<u8>, share: Option<Share>) -> Result<HttpResponse, Error> {
    let mut response = HttpResponse::build(status);
    response.content_type("application/json");
    if bytes.len() <= SLICE {
        return Ok(response.body(bytes));
    }
    let body = SlicedBody { bytes: bytes.into(), _share: share };
    response.message_body(BoxBody::new(body)).map_err(|error| Error::Internal(error.to_string()))
}

/// Serialises a view into a buffer of `size` bytes. A buffer that grows by doubling would be half empty.
pub(crate) fn to_bytes(size: usize, view: &impl Serialize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(size);
    serde_json::to_writer(&mut bytes, view).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(bytes)
}
