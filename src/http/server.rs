//! The HTTP server: binds an address, accepts connections and serves the application on them.
//!
//! This does by hand what `actix_web::HttpServer` does. That type allows neither a connection type
//! of our own ([`Connection`]) nor our own log lines about failed connections.
//! [`super::acceptor`] serves what is accepted here.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use actix_http::HttpService;
use actix_http::error::DispatchError;
use actix_service::{
    IntoServiceFactory as _, ServiceFactory, ServiceFactoryExt as _, fn_factory, fn_service, map_config,
};
use actix_web::dev::{AppConfig, Server};
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;
use actix_web::{App, web};
use tokio::net::TcpSocket;

use super::acceptor::{Acceptor, Edge};
use super::connection::Connection;
use super::connection_limit::ConnectionLimit;
use super::doors::DoorSettings;
use super::log_stream::StreamSettings;
use super::memory::RequestMemory;
use super::metrics::GaugeCache;
use super::page::ServesTls;
use super::probe_turns::ProbeTurns;
use super::request_log::SlowRequests;
use super::server_facts::ServerFacts;
use super::tls::Tls;
use super::{configure, endpoints, no_such_path, request_id};
use crate::config::ServeArgs;
use crate::domain::hosts::AllowedHosts;
use crate::domain::trusted_proxies::TrustedProxies;
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
pub(crate) struct Bound {
    socket: TcpSocket,
    tls: Option<Tls>,
}

/// Binds an address, for connections with or without TLS. Connections are refused until the server listens.
pub(crate) fn bind(address: SocketAddr, tls: Option<Tls>) -> io::Result<Bound> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Otherwise the connections of a server that was just stopped would block the address.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(Bound { socket, tls })
}

/// What all requests of a server share.
#[derive(Clone)]
struct AppData {
    engine: web::Data<Engine>,
    client: web::Data<Client>,
    allowed_hosts: web::Data<AllowedHosts>,
    trusted_proxies: web::Data<TrustedProxies>,
    serves_tls: web::Data<ServesTls>,
    probe_turns: web::Data<ProbeTurns>,
    gauges: web::Data<GaugeCache>,
    slow_requests: SlowRequests,
    streams: web::Data<StreamSettings>,
    facts: web::Data<ServerFacts>,
    memory: RequestMemory,
    doors: DoorSettings,
}

impl AppData {
    fn configure(&self, config: &mut web::ServiceConfig) {
        config
            .app_data(self.engine.clone())
            .app_data(self.client.clone())
            .app_data(self.allowed_hosts.clone())
            .app_data(self.trusted_proxies.clone())
            .app_data(self.serves_tls.clone())
            .app_data(self.probe_turns.clone())
            .app_data(self.gauges.clone())
            .app_data(self.slow_requests)
            .app_data(self.streams.clone())
            .app_data(self.facts.clone())
            .app_data(self.memory.clone())
            .app_data(self.doors);
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
    let Bound { socket, tls } = bound;
    let measured = endpoints().into_iter().map(|endpoint| (endpoint.method.to_string(), endpoint.path));
    engine.metrics().requests.set_endpoints(measured);
    let trusted_proxies = &args.edge.trusted_proxies;
    let data = AppData {
        engine: web::Data::new(engine.clone()),
        client: web::Data::new(client.clone()),
        allowed_hosts: web::Data::new(args.allowed_hosts.clone()),
        trusted_proxies: web::Data::new(trusted_proxies.clone()),
        serves_tls: web::Data::new(ServesTls(tls.is_some())),
        probe_turns: web::Data::new(ProbeTurns::default()),
        gauges: web::Data::new(GaugeCache::new(Duration::from_millis(args.monitoring.metrics_cache_ms))),
        slow_requests: SlowRequests(Duration::from_millis(args.monitoring.slow_request_ms)),
        streams: web::Data::new(StreamSettings { heartbeat: Duration::from_millis(args.stream_heartbeat_ms) }),
        facts: web::Data::new(ServerFacts::of(args, engine.time())),
        memory: RequestMemory::new(args.request_memory_mb),
        doors: DoorSettings { open_metrics: args.access.open_metrics, session_hours: args.access.session_hours },
    };
    let limit = ConnectionLimit::new(args.edge.max_connections_per_address, trusted_proxies.clone());
    let edge = Edge { tls, limit };
    let listener = socket.listen(BACKLOG)?.into_std()?;
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
        let stopping = stopping.clone();
        let until_stopping = move || {
            let stopping = stopping.clone();
            async move { stopping.notified().await }
        };
        connection_service(&data, &edge, until_stopping)
    })?;
    Ok((server.run(), address))
}

/// Returns the factory of a thread's service, which serves connections. `until_stopping` returns a future that
/// is ready when the server stops.
fn connection_service<W, F>(
    data: &AppData,
    edge: &Edge,
    until_stopping: W,
) -> impl ServiceFactory<TcpStream, Config = (), Response = (), Error = DispatchError, InitError = ()> + use<W, F>
where
    W: Fn() -> F + Clone + 'static,
    F: Future<Output = ()> + 'static,
{
    let app = || {
        let app = App::new()
            .configure(|config| data.configure(config))
            .wrap(from_fn(request_id::follow_request))
            .configure(configure)
            .default_service(web::to(no_such_path));
        map_config(app.into_factory(), |()| AppConfig::default())
    };
    let http1 = HttpService::build()
        .graceful_shutdown_signal(until_stopping.clone())
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
        .h1(app().map_err(|error: actix_web::Error| error.error_response()));
    let (app, edge) = (app(), edge.clone());
    fn_factory(move || {
        let (http1, app) = (http1.new_service(()), app.new_service(()));
        let (edge, until_stopping) = (edge.clone(), until_stopping.clone());
        async move {
            let acceptor = Acceptor { edge, http1: http1.await?, app: Rc::new(app.await?), until_stopping };
            let acceptor = Rc::new(acceptor);
            Ok::<_, ()>(fn_service(move |stream| {
                let acceptor = acceptor.clone();
                async move { acceptor.serve(stream).await }
            }))
        }
    })
}
