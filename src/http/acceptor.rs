//! Serves an accepted connection: counts it, shakes hands if the server uses TLS, and passes it to HTTP/1 or
//! HTTP/2.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use actix_http::error::DispatchError;
use actix_service::Service;
use actix_web::body::MessageBody;
use actix_web::dev::ServiceResponse;
use tokio::net::TcpStream;

use super::client_stream::ClientStream;
use super::connection::Connection;
use super::connection_limit::{ConnectionLimit, CountedConnection};
use super::http2::{self, AppRequest, Timeouts};
use super::tls::{Handshake, Tls, shake_hands};

/// What the threads of a server share.
#[derive(Clone)]
pub(crate) struct Edge {
    pub tls: Option<Tls>,
    pub limit: ConnectionLimit,
}

/// Serves the connections of one thread.
pub(crate) struct Acceptor<H, A, W> {
    pub edge: Edge,
    pub http1: H,
    /// The application, for requests of HTTP/2.
    pub app: Rc<A>,
    /// Returns a future that is ready when the server stops.
    pub until_stopping: W,
}

impl<H, A, B, W, F> Acceptor<H, A, W>
where
    H: Service<(Connection, Option<SocketAddr>), Response = (), Error = DispatchError>,
    A: Service<AppRequest, Response = ServiceResponse<B>, Error = actix_web::Error> + 'static,
    B: MessageBody + 'static,
    W: Fn() -> F,
    F: Future<Output = ()>,
{
    /// Serves a connection until it ends.
    pub(crate) async fn serve(&self, socket: TcpStream) -> Result<(), DispatchError> {
        let peer = socket.peer_addr().ok();
        let Some(_counted) = self.admit(peer) else { return Ok(()) };
        let Some(tls) = &self.edge.tls else { return self.serve_http1(ClientStream::plain(socket), peer).await };
        // Boxed, so that connections without TLS do not pay for it with memory.
        match Box::pin(shake_hands(tls, socket)).await {
            Ok(Some(Handshake::Http1(stream))) => self.serve_http1(stream, peer).await,
            Ok(Some(Handshake::Http2(stream))) => {
                let timeouts = Timeouts::default();
                let serving = http2::serve(stream, peer, self.app.clone(), timeouts, (self.until_stopping)());
                Box::pin(serving).await.unwrap_or_else(|cause| log_http2_failure(peer, &cause));
                Ok(())
            }
            Ok(None) => {
                log::info!(peer = shown(peer); "a client sent a request without TLS");
                Ok(())
            }
            Err(cause) => {
                log_handshake_failure(peer, &cause);
                Ok(())
            }
        }
    }

    /// Counts a connection. Returns `None` if its address has too many.
    fn admit(&self, peer: Option<SocketAddr>) -> Option<CountedConnection> {
        // A connection without a peer has ended already.
        self.edge.limit.admit(peer?.ip())
    }

    async fn serve_http1(&self, stream: ClientStream, peer: Option<SocketAddr>) -> Result<(), DispatchError> {
        let serving = self.http1.call((Connection::new(stream), peer));
        serving.await.inspect_err(|error| log_http1_failure(peer, error))
    }
}

fn shown(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string())
}

/// Logs why a connection failed. Only faults of the server are logged as errors.
fn log_http1_failure(peer: Option<SocketAddr>, error: &DispatchError) {
    let peer = shown(peer);
    match error {
        DispatchError::Parse(cause) => log::info!(peer, cause:%; "a client sent bytes that are no HTTP request"),
        DispatchError::Io(cause) => log::debug!(peer, cause:%; "a connection broke"),
        DispatchError::DisconnectTimeout => log::debug!(peer; "a client did not close its connection"),
        error => log::error!(peer, cause:% = error; "a connection failed"),
    }
}

/// Logs why a connection of HTTP/2 failed, which is always the client's or the network's doing.
fn log_http2_failure(peer: Option<SocketAddr>, cause: &hyper::Error) {
    let peer = shown(peer);
    match std::error::Error::source(cause) {
        Some(source) => log::debug!(peer, cause:% = source; "a connection of HTTP/2 broke"),
        None => log::debug!(peer, cause:%; "a connection of HTTP/2 broke"),
    }
}

fn log_handshake_failure(peer: Option<SocketAddr>, cause: &io::Error) {
    log::debug!(peer = shown(peer), cause:%; "a TLS handshake failed");
}
