//! The server: the address it listens on, its connections, and what they are served by.
//!
//! This is what `actix_web::HttpServer` does, put together by hand. It leaves two things in our
//! hands that are not in that one's: the connection itself ([`Connection`]), and what is said
//! about one that fails.

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
use crate::webhook::Client;

/// Idle keep-alive connections are closed after this.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Connections that may wait to be accepted, as far as the system allows. Workers come back
/// all at once when a server is restarted; whoever finds the line full tries again only after
/// seconds.
const BACKLOG: u32 = 8_192;

/// A request's head must arrive within this.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// A client that goes on sending a body that was refused is listened to for this long. Closed at
/// once, the connection could be reset before the client has read the response.
const LINGER: Duration = Duration::from_secs(1);

/// An address that is taken and not yet listened on.
pub struct Bound(TcpSocket);

/// Takes an address. Whoever connects is turned away until the server listens.
pub fn bind(address: SocketAddr) -> io::Result<Bound> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of a server that was just stopped do not keep its address taken.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(Bound(socket))
}

impl Bound {
    fn listen(self) -> io::Result<TcpListener> {
        self.0.listen(BACKLOG)?.into_std()
    }
}

/// Listens, and prepares the server; it runs when it is awaited.
pub fn serve(
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
            // A client that closes its side has gone: its long poll must end, or work would be
            // claimed for nobody.
            .h1_allow_half_closed(false)
            .on_connect_ext(|connection: &Connection, data| {
                data.insert(connection.turn());
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

/// Says why a connection ended before its time. What clients do wrong is no error of the server.
fn log_failure(peer: Option<SocketAddr>, error: &DispatchError) {
    let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
    match error {
        DispatchError::Parse(cause) => log::info!(peer, cause:%; "what a client sent is no HTTP request"),
        DispatchError::Io(cause) => log::debug!(peer, cause:%; "a connection broke"),
        DispatchError::DisconnectTimeout => log::debug!(peer; "a client did not close its connection"),
        error => log::error!(peer, cause:% = error; "a connection failed"),
    }
}
