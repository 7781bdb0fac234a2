//! The body that carries claimed work to its worker, and notices if it did not get there.
//!
//! The server asks a body for its bytes, then for more, then for the end. This one gives all
//! its bytes at once and then hesitates twice: the first pause makes the server write what it
//! has to the socket, the second lets it read from the socket again, and so learn that the
//! peer has closed it. Only a server that comes back after both gets to the end, and only
//! then is the work delivered; a body dropped earlier gives it back.
//!
//! A pause must reach the thread's reactor: a task that merely wakes itself is polled again
//! before anybody has asked the kernel for news, and a thread that was busy with another
//! request would hear of the hang-up when the work is long delivered.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

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
    pauses: Pin<Box<dyn Future<Output = ()>>>,
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
        ready!(self.pauses.as_mut().poll(context));
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
    let pauses = Box::pin(hesitate());
    let body = ClaimBody { length: bytes.len() as u64, bytes: Some(bytes.into()), pauses, claimed };
    HttpResponse::Ok()
        .content_type("application/json")
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .message_body(BoxBody::new(body))
        .map_err(|error| Error::Internal(error.to_string()))
}

async fn hesitate() {
    for _ in 0..PAUSES {
        // Comes back after the reactor has had its turn.
        tokio::task::yield_now().await;
    }
}

/// The bytes of a view.
pub fn bytes(view: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(view)
}
