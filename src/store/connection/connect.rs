//! Opens one connection to PostgreSQL, over a Unix socket or TCP, plain or with TLS.
//!
//! The parameters of TLS mean what they mean to libpq: see [`crate::store::connection::address`] and
//! [`crate::store::connection::tls`]. On a Unix socket they have no effect.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use diesel::{ConnectionError, ConnectionResult};
use diesel_async::AsyncPgConnection;
use diesel_async::SimpleAsyncConnection;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_postgres::config::{SslNegotiation, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{Error, OutageKind};
use crate::store::connection::address::{AddressError, DatabaseAddress, SslMode};
use crate::store::connection::dial::{Socket, Target, dial, targets};
use crate::store::connection::sqlstate::SqlState;
use crate::store::connection::stream::{Activity, DatabaseStream};
use crate::store::connection::tls::client_config;
use crate::store::connection::whole_result::LoadOne;

/// The request for TLS, which PostgreSQL answers with one byte: its length, and a code.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// An open connection.
pub struct Opened {
    pub connection: AsyncPgConnection,
    /// Tracks the responses that the connection still waits for.
    pub activity: Arc<Activity>,
    /// The payloads of the notifications that arrive after `LISTEN`.
    pub notifications: mpsc::UnboundedReceiver<String>,
    /// The task that drives the connection. It ends when the connection is dropped and all responses
    /// have arrived.
    pub driver: AbortHandle,
}

/// The reason why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct NotConnected {
    code: Option<SqlState>,
    /// Whether the handshake of TLS failed, or the server does not offer TLS.
    is_tls: bool,
    text: String,
}

impl NotConnected {
    fn because(text: impl Into<String>) -> Self {
        NotConnected { code: None, is_tls: false, text: text.into() }
    }

    /// Returns whether the attempt may succeed with TLS if it was made without, or the other way round.
    fn is_due_to_encryption(&self) -> bool {
        self.is_tls || self.code.is_some_and(SqlState::refuses_connection)
    }
}

impl From<tokio_postgres::Error> for NotConnected {
    fn from(error: tokio_postgres::Error) -> Self {
        let code = error.code().and_then(|code| SqlState::parse(code.code().as_bytes()));
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        NotConnected { code, is_tls: false, text: format!("{error}{}", cause.unwrap_or_default()) }
    }
}

impl From<std::io::Error> for NotConnected {
    fn from(error: std::io::Error) -> Self {
        NotConnected::because(format!("error connecting to server: {error}"))
    }
}

impl From<diesel::result::Error> for NotConnected {
    fn from(error: diesel::result::Error) -> Self {
        NotConnected { code: SqlState::of(&error), is_tls: false, text: error.to_string() }
    }
}

impl From<ConnectionError> for NotConnected {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::CouldntSetupConfiguration(error) => error.into(),
            other => NotConnected::because(other.to_string()),
        }
    }
}

impl From<NotConnected> for Error {
    fn from(failure: NotConnected) -> Self {
        let is_refused = failure.is_tls || failure.code.is_some_and(SqlState::refuses_client);
        let kind = if is_refused { OutageKind::Refused } else { OutageKind::Unreachable };
        Error::outage(kind, failure.text)
    }
}

/// Opens a connection and runs `setup` on it, a list of `SET`s. Notifications are dropped; use [`open`]
/// to receive them.
pub async fn connect(url: &str, setup: &str) -> ConnectionResult<AsyncPgConnection> {
    match open(url, setup).await {
        Ok(opened) => Ok(opened.connection),
        Err(failure) => Err(ConnectionError::BadConnection(failure.text)),
    }
}

/// Opens a connection and runs `setup` on it. The hosts of the URL are tried one after the other.
pub async fn open(url: &str, setup: &str) -> Result<Opened, NotConnected> {
    let mut address = DatabaseAddress::parse(url).map_err(|error| NotConnected::because(error.to_string()))?;
    address.config.application_name("waybill");
    let mut last = NotConnected::because("the URL names no host");
    for target in targets(&address.config) {
        match open_one(&address, &target, setup).await {
            Ok(opened) => return Ok(opened),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

/// A way to connect to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    Encrypted,
    /// Encrypted if the server offers it, otherwise plain.
    EncryptedIfOffered,
}

/// Returns the ways to connect to a host, in the order in which they are tried.
fn ways(mode: SslMode, target: &Target) -> &'static [Way] {
    match mode {
        _ if target.is_unix() => &[Way::Plain],
        SslMode::Disable => &[Way::Plain],
        SslMode::Allow => &[Way::Plain, Way::Encrypted],
        SslMode::Prefer => &[Way::EncryptedIfOffered, Way::Plain],
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => &[Way::Encrypted],
    }
}

/// Opens a connection to one host. The next way is tried only if the previous one failed because of TLS, or
/// because the server's rules (`pg_hba.conf`) refuse it.
async fn open_one(address: &DatabaseAddress, target: &Target, setup: &str) -> Result<Opened, NotConnected> {
    let mut failures: Vec<NotConnected> = Vec::new();
    for way in ways(address.tls.mode, target) {
        match open_by(*way, address, target, setup).await {
            Ok(opened) => return Ok(opened),
            Err(failure) => failures.push(failure),
        }
        if !failures.last().is_some_and(NotConnected::is_due_to_encryption) {
            break;
        }
    }
    let text = failures.iter().map(|failure| failure.text.as_str()).collect::<Vec<_>>().join("; then: ");
    let last = failures.pop();
    Err(NotConnected { text, ..last.unwrap_or_else(|| NotConnected::because("")) })
}

async fn open_by(way: Way, address: &DatabaseAddress, target: &Target, setup: &str) -> Result<Opened, NotConnected> {
    let config = &address.config;
    let activity = Arc::new(Activity::default());
    let mut socket = dial(config, target).await?;
    let is_encrypted = match way {
        Way::Plain => false,
        // The server expects TLS from the first byte on.
        _ if config.get_ssl_negotiation() == SslNegotiation::Direct => true,
        _ => request_tls(&mut socket).await?,
    };
    let (client, (notifications, driver)) = if is_encrypted {
        start_encrypted(address, target, socket, &activity).await?
    } else if way == Way::Encrypted {
        return Err(NotConnected { is_tls: true, ..NotConnected::because("the server does not offer TLS") });
    } else {
        let mut config = config.clone();
        config.ssl_mode(tokio_postgres::config::SslMode::Disable);
        let stream = DatabaseStream::new(socket, activity.clone());
        let (client, connection) = config.connect_raw(stream, NoTls).await?;
        (client, drive(connection))
    };
    let mut connection = AsyncPgConnection::try_from(client).await?;
    connection.batch_execute(setup).await?;
    check_session(config, &mut connection).await?;
    Ok(Opened { connection, activity, notifications, driver })
}

/// Asks the server for TLS. Returns whether it agrees. Nothing else is read, so that nobody can slip bytes
/// in before the handshake.
async fn request_tls(socket: &mut Socket) -> std::io::Result<bool> {
    socket.write_all(&SSL_REQUEST).await?;
    match socket.read_u8().await? {
        b'S' => Ok(true),
        b'N' => Ok(false),
        _ => Err(std::io::Error::other("the server gave no answer to the request for TLS")),
    }
}

/// Shakes hands, and logs in.
async fn start_encrypted(
    address: &DatabaseAddress,
    target: &Target,
    socket: Socket,
    activity: &Arc<Activity>,
) -> Result<(Client, Driven), NotConnected> {
    let is_tls = |text: String| NotConnected { is_tls: true, ..NotConnected::because(text) };
    let host = match &target.name {
        name if !name.is_empty() => name.clone(),
        _ if address.tls.mode == SslMode::VerifyFull => {
            return Err(NotConnected::because("sslmode=verify-full needs a host, not only a hostaddr"));
        }
        _ => target.address(),
    };
    let mut connector = MakeRustlsConnect::new(client_config(&address.tls).map_err(is_tls)?);
    let Ok(tls) = MakeTlsConnect::<Socket>::make_tls_connect(&mut connector, &host);
    let has_failed = Arc::new(AtomicBool::new(false));
    let tls = WatchedTls { tls, activity: activity.clone(), has_failed: has_failed.clone() };
    let mut config = address.config.clone();
    // The server has already agreed.
    config.ssl_mode(tokio_postgres::config::SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    match config.connect_raw(socket, tls).await {
        Ok((client, connection)) => Ok((client, drive(connection))),
        Err(error) => Err(NotConnected { is_tls: AtomicBool::load(&has_failed, Ordering::Relaxed), ..error.into() }),
    }
}

/// The payloads of a connection's notifications, and the task that drives it.
type Driven = (mpsc::UnboundedReceiver<String>, AbortHandle);

/// Spawns the task that drives a connection until it is closed, on the current runtime. Returns the
/// payloads of notifications, and the handle of the task.
fn drive<S, T>(mut connection: Connection<S, T>) -> Driven
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, notifications) = mpsc::unbounded_channel();
    let driver = tokio::spawn(async move {
        // An error ends the connection. Pending and later statements then fail.
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                // Fails where the receiver was dropped: most connections do not listen.
                let _ = sender.send(notification.payload().to_owned());
            }
        }
    });
    (notifications, driver.abort_handle())
}

/// Checks the session against `target_session_attrs`, by which a URL with several hosts selects the
/// host that accepts writes.
async fn check_session(config: &Config, connection: &mut AsyncPgConnection) -> Result<(), NotConnected> {
    let wanted = match config.get_target_session_attrs() {
        TargetSessionAttrs::ReadWrite => false,
        TargetSessionAttrs::ReadOnly => true,
        _ => return Ok(()),
    };
    match is_read_only(connection).await? == wanted {
        true => Ok(()),
        false => Err(NotConnected::because("the session does not match the target_session_attrs of the URL")),
    }
}

/// Returns whether a connection refuses writes: its database is a standby, or configured as read-only.
pub async fn is_read_only(connection: &mut AsyncPgConnection) -> diesel::QueryResult<bool> {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = diesel::sql_types::Bool)]
        is_read_only: bool,
    }
    let query = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool AS is_read_only";
    diesel::sql_query(query).load_one::<Row>(connection).await.map(|row| row.is_read_only)
}

/// A TLS connector that wraps the decrypted stream in a [`DatabaseStream`].
struct WatchedTls<T> {
    tls: T,
    activity: Arc<Activity>,
    /// Set if the handshake fails.
    has_failed: Arc<AtomicBool>,
}

impl<S, T> TlsConnect<S> for WatchedTls<T>
where
    T: TlsConnect<S>,
    T::Future: Send + 'static,
{
    type Stream = DatabaseStream<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, Self::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let WatchedTls { tls, activity, has_failed } = self;
        let connecting = tls.connect(stream);
        Box::pin(async move {
            let stream = connecting.await.inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
            Ok(DatabaseStream::new(stream, activity))
        })
    }
}

/// Checks the address of a database, and the files that it names.
pub fn check_address(url: &str) -> Result<(), AddressError> {
    let address = DatabaseAddress::parse(url)?;
    if !address.has_host() {
        return Err(AddressError::Malformed);
    }
    if address.tls.mode != SslMode::Disable {
        client_config(&address.tls).map_err(AddressError::Tls)?;
    }
    Ok(())
}
