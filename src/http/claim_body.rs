//! The body that carries claimed work to its worker, and notices if it did not get there.
//!
//! The server asks a body for its bytes, then for more, then for the end. This one gives all
//! its bytes at once and then hesitates twice: the first pause makes the server write what it
//! has to the socket, the second lets it read from the socket again, and so learn that the
//! peer has closed it. Only a server that comes back after both gets to the end, and only
//! then is the work delivered; a body dropped earlier gives it back.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::http::header;
use actix_web::web::Bytes;
use serde::Serialize;

use crate::engine::claim_deliveries::ClaimedBatch;
use crate::error::Error;

const PAUSES: u8 = 2;

/// Claimed work, serialised, with the claim attached.
pub struct ClaimBody {
    bytes: Option<Bytes>,
    length: u64,
    pauses_left: u8,
    claimed: ClaimedBatch,
}

impl MessageBody for ClaimBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.length)
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        if let Some(bytes) = self.bytes.take() {
            return Poll::Ready(Some(Ok(bytes)));
        }
        if self.pauses_left > 0 {
            self.pauses_left -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.claimed.delivered();
        Poll::Ready(None)
    }
}

/// A 200 that carries claimed work.
pub fn respond(
    claimed: ClaimedBatch,
    view: impl FnOnce(&ClaimedBatch) -> serde_json::Result<Vec<u8>>,
) -> Result<HttpResponse, Error> {
    let bytes = view(&claimed).map_err(|error| Error::Internal(error.to_string()))?;
    let body = ClaimBody { length: bytes.len() as u64, bytes: Some(bytes.into()), pauses_left: PAUSES, claimed };
    HttpResponse::Ok()
        .content_type("application/json")
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .message_body(BoxBody::new(body))
        .map_err(|error| Error::Internal(error.to_string()))
}

/// The bytes of a view.
pub fn bytes(view: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(view)
}
