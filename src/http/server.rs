//! The HTTP server: its listener, its workers and the limits of its connections.
//!
//! This is what `actix_web::HttpServer` does for plain HTTP/1.1, over connections of our own
//! ([`ClientSocket`]), which it cannot be given.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_http::{HttpService, Request, Response};
use actix_server::Server;
use actix_service::{IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::Error;
use actix_web::body::MessageBody;
use actix_web::dev::AppConfig;
use tokio::net::{TcpSocket, TcpStream};

use super::client_socket::ClientSocket;
use crate::config::ServeArgs;

/// Idle keep-alive connections are closed after this.
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Connections that may wait to be accepted, as far as the system allows. Workers come back
/// all at once when a server is restarted; whoever finds the line full tries again only after
/// seconds.
const BACKLOG: u32 = 8_192;

/// A request's head must arrive within this.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection is kept that is closed because its request was not read to the end,
/// or because it was idle.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Binds the address and prepares the server; it runs when it is awaited. Must be called on a
/// Tokio runtime.
pub fn listen<F, I, S, B>(args: &ServeArgs, drain_seconds: u64, app: F) -> std::io::Result<(Server, SocketAddr)>
where
    F: Fn() -> I + Send + Clone + 'static,
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig> + 'static,
    S::Error: Into<Error>,
    S::InitError: fmt::Debug,
    S::Response: Into<Response<B>>,
    <S::Service as Service<Request>>::Future: 'static,
    B: MessageBody + 'static,
{
    let listener = bind(args.bind)?;
    let address = listener.local_addr()?;
    let server = Server::build()
        .workers(usize::from(args.http_workers))
        .max_concurrent_connections(args.max_connections)
        .shutdown_timeout(drain_seconds)
        .disable_signals();
    let stopping = server.graceful_shutdown_signal();
    let server = server.listen("http", listener, move || {
        let stopping = stopping.clone();
        let http = HttpService::build()
            .keep_alive(KEEP_ALIVE)
            .client_request_timeout(HEAD_TIMEOUT)
            .client_disconnect_timeout(CLOSE_TIMEOUT)
            // A client that closes its side has gone: its long poll must end, or work would be
            // claimed for nobody.
            .h1_allow_half_closed(false)
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .local_addr(address)
            .on_connect_ext(|connection: &ClientSocket, data| {
                data.insert(connection.claims());
            })
            .h1(map_config(app().into_factory().map_err(|error| error.into().error_response()), |()| {
                AppConfig::default()
            }));
        fn_service(|socket: TcpStream| async {
            let client = socket.peer_addr().ok();
            Ok((ClientSocket::new(socket), client))
        })
        .and_then(http)
    })?;
    Ok((server.run(), address))
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}
