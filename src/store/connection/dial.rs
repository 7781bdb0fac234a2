//! Opens sockets to the hosts that a database URL names.
//!
//! The driver could open the socket, but then no code could run between the driver and the socket.
//! [`crate::store::connection::stream`] has to, so the socket is opened here, by the driver's rules.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts};
use tokio_util::either::Either;

/// A TCP connection or a Unix socket.
pub(crate) type Socket = Either<TcpStream, UnixStream>;

/// The port of a host for which the URL has none.
const DEFAULT_PORT: u16 = 5432;

/// One of the hosts that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The name that the server's certificate must contain.
    pub name: String,
    address: Address,
    port: u16,
}

impl Target {
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.address, Address::Unix(_))
    }

    /// Returns the name or address that is dialled.
    pub(crate) fn address(&self) -> String {
        match &self.address {
            Address::Tcp(name) => name.clone(),
            Address::Unix(path) => path.display().to_string(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Address {
    Tcp(String),
    Unix(PathBuf),
}

/// Returns the hosts in the order in which they are tried.
pub(crate) fn targets(config: &Config) -> Vec<Target> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let target = |index: usize| {
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
        let name = match hosts.get(index) {
            Some(Host::Tcp(name)) => name.clone(),
            _ => String::new(),
        };
        let address = match (addresses.get(index), hosts.get(index)) {
            (Some(address), _) => Address::Tcp(address.to_string()),
            (None, Some(Host::Tcp(name))) => Address::Tcp(name.clone()),
            (None, Some(Host::Unix(folder))) => Address::Unix(folder.join(format!(".s.PGSQL.{port}"))),
            (None, None) => return None,
        };
        Some(Target { name, address, port })
    };
    let mut targets: Vec<Target> = (0..hosts.len().max(addresses.len())).filter_map(target).collect();
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        targets.sort_by_cached_key(|_| getrandom::u32().unwrap_or_default());
    }
    targets
}

/// Opens a socket to the first address of a host that accepts the connection.
pub(crate) async fn dial(config: &Config, target: &Target) -> io::Result<Socket> {
    let name = match &target.address {
        Address::Unix(path) => return with_timeout(config, UnixStream::connect(path)).await.map(Either::Right),
        Address::Tcp(name) => name,
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in lookup_host((name.as_str(), target.port)).await? {
        match with_timeout(config, TcpStream::connect(address)).await {
            Ok(stream) => return set_options(config, stream).map(Either::Left),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn with_timeout<T>(config: &Config, connecting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match config.get_connect_timeout() {
        Some(limit) => tokio::time::timeout(*limit, connecting).await.unwrap_or(Err(io::ErrorKind::TimedOut.into())),
        None => connecting.await,
    }
}

/// The time after which a connection is given up whose other end acknowledges nothing, if the URL names none. The
/// default of Linux is about 15 minutes, for which every statement on such a connection would wait.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// The time after which an idle connection is probed, if the URL names none. The driver's default is two hours, by which
/// time a firewall may have forgotten the connection: the pool uses the one that was returned last, and the others rest.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// Returns the time after which an idle connection is probed. The driver does not tell whether a URL names its default.
fn keepalive_idle(config: &Config) -> Duration {
    let idle = config.get_keepalives_idle();
    if idle == Config::new().get_keepalives_idle() { KEEPALIVE_IDLE } else { idle }
}

fn set_options(config: &Config, stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(config.get_tcp_user_timeout().copied().unwrap_or(USER_TIMEOUT)))?;
    if config.get_keepalives() {
        let mut keepalive = TcpKeepalive::new().with_time(keepalive_idle(config));
        if let Some(interval) = config.get_keepalives_interval() {
            keepalive = keepalive.with_interval(interval);
        }
        if let Some(retries) = config.get_keepalives_retries() {
            keepalive = keepalive.with_retries(retries);
        }
        socket.set_tcp_keepalive(&keepalive)?;
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Vec<Target> {
        targets(&url.parse().expect("an address"))
    }

    fn tcp(name: &str, address: &str, port: u16) -> Target {
        Target { name: name.into(), address: Address::Tcp(address.into()), port }
    }

    #[test]
    fn hosts_are_tried_in_the_order_of_the_url() {
        let one = tcp("one", "one", 5432);
        assert_eq!(parse("postgres://one,other:6000/db"), [one.clone(), tcp("other", "other", 6000)]);
        assert_eq!(parse("host=one,other port=5432"), [one, tcp("other", "other", 5432)]);
    }

    async fn dialled(parameters: &str) -> TcpStream {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let config: Config = format!("host=127.0.0.1 port={port} {parameters}").parse().expect("an address");
        match dial(&config, &targets(&config)[0]).await.expect("a connection") {
            Either::Left(stream) => stream,
            Either::Right(_) => panic!("a Unix socket"),
        }
    }

    #[tokio::test]
    async fn idle_connections_are_probed_before_a_firewall_forgets_them() {
        let time = async |parameters: &str| {
            let stream = dialled(parameters).await;
            let socket = SockRef::from(&stream);
            socket.keepalive().expect("an option").then(|| socket.tcp_keepalive_time().expect("an option"))
        };
        assert_eq!(time("").await, Some(KEEPALIVE_IDLE));
        assert_eq!(time("keepalives_idle=600").await, Some(Duration::from_secs(600)));
        assert_eq!(time("keepalives=0").await, None);
    }

    #[test]
    fn hostaddr_is_dialled_and_host_is_the_name_in_the_certificate() {
        assert_eq!(parse("host=db.example.com hostaddr=10.0.0.1"), [tcp("db.example.com", "10.0.0.1", 5432)]);
        assert_eq!(parse("hostaddr=10.0.0.1"), [tcp("", "10.0.0.1", 5432)]);
    }

    #[test]
    fn a_folder_contains_a_socket_named_after_the_port() {
        let socket = Address::Unix("/run/pg/.s.PGSQL.6000".into());
        assert_eq!(
            parse("postgres://%2Frun%2Fpg:6000/db"),
            [Target { name: String::new(), address: socket, port: 6000 }]
        );
    }
}
