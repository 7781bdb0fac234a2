//! Opens one connection to PostgreSQL, over a Unix socket or TCP, plain or with TLS.
//!
//! `sslmode=require`, `verify-ca` and `verify-full` all have the same meaning here: TLS, and the
//! server's certificate is verified against the system's root certificates. Without one of them the
//! connection is plain.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use diesel::{ConnectionError, ConnectionResult};
use diesel_async::AsyncPgConnection;
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Config, Connection, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{Error, OutageKind};
use crate::store::connection::dial::{Socket, Target, dial, targets};
use crate::store::connection::sqlstate::SqlState;
use crate::store::connection::stream::{Activity, DatabaseStream};

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
    text: String,
}

impl From<tokio_postgres::Error> for NotConnected {
    fn from(error: tokio_postgres::Error) -> Self {
        let code = error.code().and_then(|code| SqlState::parse(code.code().as_bytes()));
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        NotConnected { code, text: format!("{error}{}", cause.unwrap_or_default()) }
    }
}

impl From<std::io::Error> for NotConnected {
    fn from(error: std::io::Error) -> Self {
        NotConnected { code: None, text: format!("error connecting to server: {error}") }
    }
}

impl From<diesel::result::Error> for NotConnected {
    fn from(error: diesel::result::Error) -> Self {
        NotConnected { code: SqlState::of(&error), text: error.to_string() }
    }
}

impl From<ConnectionError> for NotConnected {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::CouldntSetupConfiguration(error) => error.into(),
            other => NotConnected { code: None, text: other.to_string() },
        }
    }
}

impl From<NotConnected> for Error {
    fn from(failure: NotConnected) -> Self {
        let is_refused = failure.code.is_some_and(SqlState::refuses_client);
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
    let (url, wants_tls) = split_tls(url);
    let mut config: Config = url.parse()?;
    config.application_name("waybill");
    config.ssl_mode(if wants_tls { SslMode::Require } else { SslMode::Disable });
    let mut last = NotConnected { code: None, text: "the URL names no host".into() };
    for target in targets(&config) {
        match open_one(&config, &target, wants_tls, setup).await {
            Ok(opened) => return Ok(opened),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

async fn open_one(config: &Config, target: &Target, wants_tls: bool, setup: &str) -> Result<Opened, NotConnected> {
    let activity = Arc::new(Activity::default());
    let socket = dial(config, target).await?;
    let (client, (notifications, driver)) = if wants_tls {
        let Ok(tls) = MakeTlsConnect::<Socket>::make_tls_connect(&mut verifying_tls()?, &target.name);
        let tls = WatchedTls { tls, activity: activity.clone() };
        let (client, connection) = config.connect_raw(socket, tls).await?;
        (client, drive(connection))
    } else {
        let stream = DatabaseStream::new(socket, activity.clone());
        let (client, connection) = config.connect_raw(stream, NoTls).await?;
        (client, drive(connection))
    };
    let mut connection = AsyncPgConnection::try_from(client).await?;
    connection.batch_execute(setup).await?;
    check_session(config, &mut connection).await?;
    Ok(Opened { connection, activity, notifications, driver })
}

/// Spawns the task that drives a connection until it is closed, on the current runtime. Returns the
/// payloads of notifications, and the handle of the task.
fn drive<S, T>(mut connection: Connection<S, T>) -> (mpsc::UnboundedReceiver<String>, AbortHandle)
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
        false => Err(NotConnected {
            code: None,
            text: "the session does not match the target_session_attrs of the URL".into(),
        }),
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
    diesel::sql_query(query).get_result::<Row>(connection).await.map(|row| row.is_read_only)
}

/// A TLS connector that wraps the decrypted stream in a [`DatabaseStream`].
struct WatchedTls<T> {
    tls: T,
    activity: Arc<Activity>,
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
        let (connecting, activity) = (self.tls.connect(stream), self.activity);
        Box::pin(async move { Ok(DatabaseStream::new(connecting.await?, activity)) })
    }
}

/// Returns whether `url` is a valid PostgreSQL address that names a host.
pub fn is_address(url: &str) -> bool {
    let config = split_tls(url).0.parse::<Config>();
    config.is_ok_and(|config| !config.get_hosts().is_empty() || !config.get_hostaddrs().is_empty())
}

/// Removes `sslmode` from the URL, since the driver refuses the verifying modes. Returns the URL, and
/// whether TLS is wanted.
fn split_tls(url: &str) -> (String, bool) {
    let Some((base, query)) = url.split_once('?') else {
        return (url.to_owned(), false);
    };
    let mut wants_tls = false;
    let kept: Vec<&str> = query
        .split('&')
        .filter(|pair| match pair.strip_prefix("sslmode=") {
            Some(mode) => {
                wants_tls = matches!(mode, "require" | "verify-ca" | "verify-full");
                false
            }
            None => true,
        })
        .collect();
    if kept.is_empty() { (base.to_owned(), wants_tls) } else { (format!("{base}?{}", kept.join("&")), wants_tls) }
}

fn verifying_tls() -> ConnectionResult<MakeRustlsConnect> {
    // A second installation fails because a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    MakeRustlsConnect::with_native_certs()
        .map(|(connector, _)| connector)
        .map_err(|errors| ConnectionError::BadConnection(format!("no usable root certificates: {errors:?}")))
}

#[cfg(test)]
mod tests {
    use super::{is_address, split_tls};

    #[test]
    fn an_address_must_name_a_host() {
        assert!(is_address("postgres://user:word@%2Frun%2Fpg:5432/db?sslmode=require"));
        assert!(is_address("host=localhost user=me"));
        assert!(!is_address("postgres//user:word@localhost"));
        assert!(!is_address("localhost"));
        assert!(!is_address(""));
    }

    #[test]
    fn sslmode_is_removed_from_the_url() {
        assert_eq!(split_tls("postgres://h/d"), ("postgres://h/d".into(), false));
        assert_eq!(split_tls("postgres://h/d?sslmode=verify-full"), ("postgres://h/d".into(), true));
        assert_eq!(
            split_tls("postgres://h/d?connect_timeout=3&sslmode=disable"),
            ("postgres://h/d?connect_timeout=3".into(), false)
        );
    }
}
