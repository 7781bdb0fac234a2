//! The HTTP server: binds an address, accepts connections and serves the application on them.
//!
//! This does by hand what `actix_web::HttpServer` does. That type allows neither a connection type
//! of our own ([`Connection`]) nor our own log lines about failed connections.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_http::HttpService;
use actix_http::error::DispatchError;
use actix_service::{IntoServiceFactory as _, Service as _, ServiceFactoryExt as _, apply_fn_factory, map_config};
use actix_web::dev::{AppConfig, Server};
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;
use actix_web::{App, web};
use tokio::net::TcpSocket;

use super::connection::Connection;
use super::memory::RequestMemory;
use super::{configure, no_such_path, request_id};
use crate::config::ServeArgs;
use crate::engine::Engine;
use crate::engine::batching::open_mailbox;
use crate::webhook::Client;

/// The time after which an idle connection is closed.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// The maximum number of connections that wait to be accepted; the system may allow fewer. After a
/// restart all workers reconnect at once, and a client that finds the backlog full retries only
/// after seconds.
const BACKLOG: u32 = 8_192;

/// The time within which the head of a request must arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which the server goes on reading a body that it has refused. If it closed the
/// connection at once, the connection could be reset before the client has read the response.
const LINGER: Duration = Duration::from_secs(1);

/// A socket that is bound to an address and does not listen yet.
pub(crate) struct Bound(TcpSocket);

/// Binds an address. Connections are refused until the server listens.
pub(crate) fn bind(address: SocketAddr) -> io::Result<Bound> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Otherwise the connections of a server that was just stopped would block the address.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(Bound(socket))
}

impl Bound {
    fn listen(self) -> io::Result<TcpListener> {
        self.0.listen(BACKLOG)?.into_std()
    }
}

/// Listens, and returns the server and its address. The server runs when it is awaited.
pub(crate) fn serve(
    bound: Bound,
    engine: &Engine,
    client: &Client,
    args: &ServeArgs,
    drain_seconds: u64,
) -> io::Result<(Server, SocketAddr)> {
    let engine = web::Data::new(engine.clone());
    let client = web::Data::new(client.clone());
    let allowed_hosts = web::Data::new(args.allowed_hosts.clone());
    let memory = RequestMemory::new(args.request_memory_mb);
    let listener = bound.listen()?;
    let address = listener.local_addr()?;
    let builder = Server::build()
        .workers(usize::from(args.http_workers))
        .max_concurrent_connections(args.max_connections)
        .shutdown_timeout(drain_seconds)
        .disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    let server = builder.listen("http", listener, move || {
        // This runs once on each thread.
        open_mailbox();
        let app = App::new()
            .app_data(engine.clone())
            .app_data(client.clone())
            .app_data(allowed_hosts.clone())
            .app_data(memory.clone())
            .wrap(from_fn(request_id::follow_request))
            .configure(configure)
            .default_service(web::to(no_such_path));
        let app = app.into_factory().map_err(|error: actix_web::Error| error.error_response());
        let stopping = stopping.clone();
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .keep_alive(KEEP_ALIVE)
            .client_request_timeout(HEAD_TIMEOUT)
            .client_disconnect_timeout(LINGER)
            // A client that closes its side has disconnected. Its long poll must end, or it would
            // claim events that no worker receives.
            .h1_allow_half_closed(false)
            .on_connect_ext(|connection: &Connection, data| {
                data.insert(connection.request_state());
                data.insert(connection.claims());
            })
            .h1(map_config(app, |()| AppConfig::default()));
        apply_fn_factory(http, |stream: TcpStream, http| {
            let peer = stream.peer_addr().ok();
            let serving = http.call((Connection::new(stream), peer));
            async move { serving.await.inspect_err(|error| log_failure(peer, error)) }
        })
    })?;
    Ok((server.run(), address))
}

/// Logs why a connection failed. Only faults of the server are logged as errors.
fn log_failure(peer: Option<SocketAddr>, error: &DispatchError) {
    let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
    match error {
        DispatchError::Parse(cause) => log::info!(peer, cause:%; "a client sent bytes that are no HTTP request"),
        DispatchError::Io(cause) => log::debug!(peer, cause:%; "a connection broke"),
        DispatchError::DisconnectTimeout => log::debug!(peer; "a client did not close its connection"),
        error => log::error!(peer, cause:% = error; "a connection failed"),
    }
}
