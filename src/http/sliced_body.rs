//! A response's body that is handed to the server slice by slice.
//!
//! The server copies what a body gives it into the connection's buffer, which keeps its size for as
//! long as the connection lives. A large body in one piece would take its memory twice, and a kept
//! connection would go on holding it.

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

/// Bytes that are handed over at a time.
pub const SLICE: usize = 64 * 1024;

/// Bytes on their way, with the share of the memory for bodies that the request took, if it took
/// one: a large request is often answered by as large a response.
pub struct SlicedBody {
    bytes: Bytes,
    _share: Option<Share>,
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

/// Returns a response with a JSON body of about `size` bytes, which keeps the request's share of the
/// memory until it has been sent.
pub fn json(
    status: StatusCode,
    size: usize,
    view: &impl Serialize,
    share: Option<Share>,
) -> Result<HttpResponse, Error> {
    let bytes = to_bytes(size, view)?;
    let mut response = HttpResponse::build(status);
    response.content_type("application/json");
    if bytes.len() <= SLICE {
        return Ok(response.body(bytes));
    }
    let body = SlicedBody { bytes: bytes.into(), _share: share };
    response.message_body(BoxBody::new(body)).map_err(|error| Error::Internal(error.to_string()))
}

/// Serialises a view into room for `size` bytes, since room that grows by doubling is half empty.
pub fn to_bytes(size: usize, view: &impl Serialize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(size);
    serde_json::to_writer(&mut bytes, view).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(bytes)
}
