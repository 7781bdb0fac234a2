//! One connection to PostgreSQL: by socket or TCP, plain or by TLS.
//!
//! `sslmode=require`, `verify-ca` and `verify-full` all mean the same here: TLS, with the
//! server's certificate verified against the system's roots. Without one of them the
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
    /// The connection.
    pub connection: AsyncPgConnection,
    /// Whether it waits for an answer.
    pub activity: Arc<Activity>,
    /// What it hears after `LISTEN`: the payloads.
    pub notifications: mpsc::UnboundedReceiver<String>,
    /// The task that carries its bytes. It ends by itself when the connection is dropped and
    /// everything is answered.
    pub driver: AbortHandle,
}

/// Why there is no connection.
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
        let is_refused = failure.code.is_some_and(SqlState::refuses_us);
        let kind = if is_refused { OutageKind::Refused } else { OutageKind::Unreachable };
        Error::outage(kind, failure.text)
    }
}

/// Opens a connection, with `setup` (a list of `SET`s) run on it. It hears no notifications: whoever
/// listens needs [`open`].
pub async fn connect(url: &str, setup: &str) -> ConnectionResult<AsyncPgConnection> {
    match open(url, setup).await {
        Ok(opened) => Ok(opened.connection),
        Err(failure) => Err(ConnectionError::BadConnection(failure.text)),
    }
}

/// The same, with what goes with a connection.
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
        let tls = Watched { tls, activity: activity.clone() };
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

/// Carries a connection's bytes until it is closed; answers what it hears. Runs on the runtime
/// that it is called on.
fn drive<S, T>(mut connection: Connection<S, T>) -> (mpsc::UnboundedReceiver<String>, AbortHandle)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (heard, notifications) = mpsc::unbounded_channel();
    let driver = tokio::spawn(async move {
        // An error ends the connection; whoever uses it next, or waits for an answer, is told.
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                // Most connections do not listen, and nobody keeps this end of theirs.
                let _ = heard.send(notification.payload().to_owned());
            }
        }
    });
    (notifications, driver.abort_handle())
}

/// With `target_session_attrs` a URL with several hosts finds the one that takes writes.
async fn check_session(config: &Config, connection: &mut AsyncPgConnection) -> Result<(), NotConnected> {
    let wanted = match config.get_target_session_attrs() {
        TargetSessionAttrs::ReadWrite => false,
        TargetSessionAttrs::ReadOnly => true,
        _ => return Ok(()),
    };
    match is_read_only(connection).await? == wanted {
        true => Ok(()),
        false => Err(NotConnected { code: None, text: "the session is not of the kind that the URL asks for".into() }),
    }
}

/// Whether a connection takes no writes: its database is a standby, or set so.
pub async fn is_read_only(connection: &mut AsyncPgConnection) -> diesel::QueryResult<bool> {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = diesel::sql_types::Bool)]
        is_read_only: bool,
    }
    let asking = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool AS is_read_only";
    diesel::sql_query(asking).get_result::<Row>(connection).await.map(|row| row.is_read_only)
}

/// Encrypts, and watches what is said inside.
struct Watched<T> {
    tls: T,
    activity: Arc<Activity>,
}

impl<S, T> TlsConnect<S> for Watched<T>
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

/// Whether this can be the address of a PostgreSQL at all.
pub fn is_address(url: &str) -> bool {
    let config = split_tls(url).0.parse::<Config>();
    config.is_ok_and(|config| !config.get_hosts().is_empty() || !config.get_hostaddrs().is_empty())
}

/// Takes `sslmode` out of the URL (the driver refuses the verifying modes) and says whether
/// TLS is wanted.
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
    // Installing twice is an error that means "already there".
    let _ = rustls::crypto::ring::default_provider().install_default();
    MakeRustlsConnect::with_native_certs()
        .map(|(connector, _)| connector)
        .map_err(|errors| ConnectionError::BadConnection(format!("no usable root certificates: {errors:?}")))
}

#[cfg(test)]
mod tests {
    use super::{is_address, split_tls};

    #[test]
    fn an_address_names_a_host() {
        assert!(is_address("postgres://user:word@%2Frun%2Fpg:5432/db?sslmode=require"));
        assert!(is_address("host=localhost user=me"));
        assert!(!is_address("postgres//user:word@localhost"));
        assert!(!is_address("localhost"));
        assert!(!is_address(""));
    }

    #[test]
    fn sslmode_is_taken_out_of_the_url() {
        assert_eq!(split_tls("postgres://h/d"), ("postgres://h/d".into(), false));
        assert_eq!(split_tls("postgres://h/d?sslmode=verify-full"), ("postgres://h/d".into(), true));
        assert_eq!(
            split_tls("postgres://h/d?connect_timeout=3&sslmode=disable"),
            ("postgres://h/d?connect_timeout=3".into(), false)
        );
    }
}
