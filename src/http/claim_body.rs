//! The body of a response that carries claimed events.
//!
//! It yields its bytes in slices. With the last slice it hands the claim to the connection's
//! [`SentClaims`], which decides whether the response arrived. Over HTTP/2 there is none: the claim counts as delivered
//! when the body is asked for more after its last slice. If the body is dropped before, the claim is undone.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};

use super::memory::Share;
use super::sent_claims::SentClaims;
use super::sliced_body::{SLICE, respond_bytes};
use crate::engine::claim::{ClaimedBatch, SentClaim};
use crate::error::Error;

/// The value of `Cache-Control` in responses to claims.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Serialised events with their claim.
pub(crate) struct ClaimBody {
    length: u64,
    content: Content,
    connection: Option<Rc<SentClaims>>,
    /// The share of the memory for results, kept until they are sent.
    _share: Option<Share>,
}

enum Content {
    Unsent(Bytes, SentClaim),
    /// Without a connection that decides, the claim is delivered when the sender asks for more.
    Unconfirmed(SentClaim),
    Sent,
    /// Not sent, because the client has closed the connection.
    Withheld,
}

impl MessageBody for ClaimBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.length)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let is_closed = self.connection.as_ref().is_some_and(|connection| connection.is_closed_by_client());
        match std::mem::replace(&mut self.content, Content::Withheld) {
            // A client that closes its side while it waits counts as disconnected. The server sees
            // the close as well and drops the body next.
            Content::Unsent(..) if is_closed => Poll::Pending,
            Content::Withheld => Poll::Pending,
            Content::Unsent(mut bytes, claim) if bytes.len() > SLICE => {
                let slice = bytes.split_to(SLICE);
                self.content = Content::Unsent(bytes, claim);
                Poll::Ready(Some(Ok(slice)))
            }
            Content::Unsent(bytes, claim) => {
                self.content = match &self.connection {
                    Some(connection) => {
                        connection.add(claim);
                        Content::Sent
                    }
                    None => Content::Unconfirmed(claim),
                };
                Poll::Ready(Some(Ok(bytes)))
            }
            Content::Unconfirmed(mut claim) => {
                claim.delivered();
                self.content = Content::Sent;
                Poll::Ready(None)
            }
            Content::Sent => {
                self.content = Content::Sent;
                Poll::Ready(None)
            }
        }
    }
}

/// Returns a 200 response with the claimed events, serialised by `view`. A response without events is
/// sent as any other: there is no claim to undo.
pub fn respond(
    request: &HttpRequest,
    claimed: ClaimedBatch,
    view: impl FnOnce(&ClaimedBatch) -> Result<Vec<u8>, Error>,
) -> Result<HttpResponse, Error> {
    respond_holding(request, claimed, None, view)
}

/// Does the same as [`respond`], and keeps `share` until the response is sent.
pub(crate) fn respond_holding(
    request: &HttpRequest,
    claimed: ClaimedBatch,
    share: Option<Share>,
    view: impl FnOnce(&ClaimedBatch) -> Result<Vec<u8>, Error>,
) -> Result<HttpResponse, Error> {
    let bytes = view(&claimed)?;
    if claimed.events().is_empty() {
        let mut response = respond_bytes(StatusCode::OK, bytes, share)?;
        response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
        return Ok(response);
    }
    let connection = request.conn_data::<Rc<SentClaims>>().cloned();
    let length = bytes.len() as u64;
    let body = ClaimBody { length, content: Content::Unsent(bytes.into(), claimed.send()), connection, _share: share };
    HttpResponse::Ok()
        .content_type("application/json")
        .insert_header((header::CACHE_CONTROL, NO_STORE))
        .message_body(BoxBody::new(body))
        .map_err(|error| Error::Internal(error.to_string()))
}
