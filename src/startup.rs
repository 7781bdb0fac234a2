//! Starts and stops a server.
//!
//! Start order: load the certificate, bind the address, open the database (an embedded PostgreSQL if no URL is
//! given), run migrations, create the engine, check that the address may be served without keys, start HTTP and
//! the background services. The address is bound first
//! but listened on last, so early clients are refused at once instead of hanging.
//!
//! Stop order: waiting workers get a 204, streams end, new connections are refused, requests in flight finish, the
//! background services stop, claims that did not reach their workers are undone, the last spans are sent, and the
//! database closes last.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::background;
use crate::config::in_force::may_hide_password;
use crate::config::{DatabaseArgs, ServeArgs};
use crate::engine::Engine;
use crate::engine::clock::Clock;
use crate::error::{Error, OutageKind};
use crate::http;
use crate::http::tls::{CertificateFiles, Renewal, Tls};
use crate::postgres::{Cluster, ClusterOptions, PostgresError, default_data_dir, has_cluster, running_url};
use crate::store::connection::address::AddressError;
use crate::store::connection::connect::check_address;
use crate::store::connection::database::Database;
use crate::store::connection::migrate::{enforce_rules, migrate};
use crate::traces::Tracer;
use crate::webhook::Client;

/// The time that requests in flight may take once the server stops.
const DRAIN_SECONDS: u64 = 5;

/// The time that background services may take to finish their current round, and claims to be undone.
const BACKGROUND_STOP: Duration = Duration::from_secs(6);

/// The time to wait for a database that is still starting.
const DATABASE_WAIT: Duration = Duration::from_secs(30);

/// Connections that the embedded PostgreSQL accepts in addition to those for requests: one for maintenance, one for
/// notifications, and one for the lock of whoever drops weeks of the event log; the rest for `psql` and backups.
const SPARE_CONNECTIONS: usize = 56;

/// The reason why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The embedded PostgreSQL failed.
    #[error("{0}")]
    Postgres(#[from] PostgresError),
    /// The database URL is malformed, or names files that cannot be used.
    #[error("{0}")]
    DatabaseUrl(#[from] AddressError),
    #[error("database: {0}")]
    Database(#[from] Error),
    /// The webhook client could not be created.
    #[error("webhooks cannot be sent: {0}")]
    Webhooks(String),
    /// Traces cannot be sent.
    #[error("traces cannot be sent: {0}")]
    Traces(String),
    /// Settings contradict each other, or the machine.
    #[error("{0}")]
    Settings(String),
    #[error("cannot listen on {address}: {cause}")]
    Bind { address: SocketAddr, cause: std::io::Error },
    /// Others can reach the address, and there is no key.
    #[error(
        "refusing to listen on {address} without an API key: anybody who reaches it could do everything. Make the \
         first key with\n\n    {command}\n\nand start again. To listen without keys nevertheless, add --open"
    )]
    NoKeys { address: SocketAddr, command: String },
}

/// A running server.
pub struct Server {
    /// `http` or `https`.
    scheme: &'static str,
    address: SocketAddr,
    engine: Engine,
    http: ServerHandle,
    http_task: JoinHandle<std::io::Result<()>>,
    background: TaskTracker,
    shutdown: CancellationToken,
    cluster: Option<Cluster>,
}

impl Server {
    /// Starts everything. Must be called on a multi-threaded runtime.
    pub async fn start(args: &ServeArgs, clock: Clock) -> Result<Self, StartError> {
        args.retention.settings().check().map_err(StartError::Settings)?;
        let settings = args.engine_settings().map_err(StartError::Settings)?;
        let trace_settings = args.traces.settings().map_err(StartError::Traces)?;
        // Before the database is initialised: an address in use is the most common mistake.
        let refused = |cause| StartError::Bind { address: args.bind, cause };
        let (tls, renewal) = prepare_tls(args)?.unzip();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let bound = http::server::bind(args.bind, tls).map_err(refused)?;
        let (url, cluster) = open_database(&args.database, args.db_connections).await?;
        migrate_when_reachable(&url).await?;
        let database = Database::new(&url, usize::from(args.db_connections))?;
        if args.check_rules.unwrap_or(cfg!(debug_assertions)) {
            enforce_rules(&mut *database.connection().await?).await?;
        }
        let engine = Engine::new(database, clock, settings);
        engine.trace_with(Tracer::start(trace_settings.as_ref(), engine.metrics()).map_err(StartError::Traces)?);
        // Before the first publish: the database may have been restored since the server last ran.
        engine.check_history().await?;
        engine.report_secret_keys().await?;
        engine.refresh_keys().await?;
        check_access(args, &engine)?;
        background::maintenance::prepare(&engine).await;
        let client = Client::new(&args.webhook_settings()).map_err(StartError::Webhooks)?;
        let shutdown = CancellationToken::new();
        let (server, address) = http::server::serve(bound, &engine, &client, args, DRAIN_SECONDS).map_err(refused)?;
        let background = background::start(&engine, &client, &args.background_settings(), &shutdown);
        if let Some(renewal) = renewal {
            background.spawn(renewal.run(shutdown.clone()));
        }
        let http = server.handle();
        Ok(Server { scheme, address, engine, http, http_task: tokio::spawn(server), background, shutdown, cluster })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the server, by its address.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the embedded PostgreSQL, or `None` if the server uses an external database.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// Stops everything, in the order that the module documentation describes.
    pub async fn stop(self) {
        self.engine.hub().close();
        self.engine.trail().close();
        self.http.stop(true).await;
        let _ = self.http_task.await;
        self.shutdown.cancel();
        let finishing = async {
            self.background.wait().await;
            self.engine.finish_claim_undos().await;
            // What services and undone claims have counted since the recorder's last round.
            if let Err(error) = self.engine.record_stats().await {
                log::warn!("the last statistics are not stored: {error}");
            }
        };
        let _ = tokio::time::timeout(BACKGROUND_STOP, finishing).await;
        self.engine.tracer().stop().await;
        self.engine.database().close();
        if let Some(cluster) = self.cluster {
            // Blocks for some milliseconds, so it runs on a thread for blocking work.
            let stopped = tokio::task::spawn_blocking(move || cluster.stop()).await;
            if let Ok(Err(error)) = stopped {
                log::error!("PostgreSQL did not stop cleanly: {error}");
            }
        }
    }
}

/// Refuses to serve everything to everybody on an address that others can reach, unless told to: now, and later if
/// the database is replaced by one without keys.
fn check_access(args: &ServeArgs, engine: &Engine) -> Result<(), StartError> {
    let is_loopback = args.bind.ip().to_canonical().is_loopback();
    if !is_loopback && !args.access.open {
        engine.keys().stay_closed();
    }
    if engine.keys().is_required() {
        return Ok(());
    }
    let address = args.bind;
    let command = bootstrap_command(&args.database);
    if is_loopback {
        log::info!("no API key has been made: everybody on this machine may do everything. Make one with: {command}");
    } else if args.access.open {
        log::warn!(
            "OPEN: no API key has been made, and --open is given. EVERYBODY who reaches {address} may do everything. \
             Make a key with: {command}"
        );
    } else {
        return Err(StartError::NoKeys { address, command });
    }
    Ok(())
}

/// Returns the command that makes the first key in the same database. It shows no password.
fn bootstrap_command(args: &DatabaseArgs) -> String {
    let verb = "waybill keys create --bootstrap";
    match args.database_url.as_deref().filter(|url| !url.is_empty()) {
        // The environment of the operator most likely has it, too.
        Some(url) if std::env::var("DATABASE_URL").is_ok_and(|given| given == url) => verb.to_owned(),
        Some(url) => match url::Url::parse(url) {
            Ok(mut url) if !may_hide_password(&url) => {
                let has_password = url.password().is_some() && url.set_password(Some("PASSWORD")).is_ok();
                let hint = if has_password { " (with its password)" } else { "" };
                format!("{verb} --database-url '{url}'{hint}")
            }
            _ => format!("DATABASE_URL='…' {verb} (with the server's database)"),
        },
        None => match &args.data_dir {
            Some(data_dir) => format!("{verb} --data-dir '{}'", data_dir.display()),
            None => verb.to_owned(),
        },
    }
}

/// Returns the database URL like [`open_database`], also if another Waybill process runs the embedded cluster.
pub async fn reach_database(args: &DatabaseArgs) -> Result<(String, Option<Cluster>), StartError> {
    match open_database(args, 1).await {
        Err(StartError::Postgres(PostgresError::InUse { data_dir, .. })) => {
            Ok((running_url(&data_dir, "postgres")?, None))
        }
        opened => opened,
    }
}

/// Returns the data directory if the embedded database is to be used and the directory has none. Commands that need
/// what is stored check this before they open the database, which would create an empty one in a wrong directory.
pub fn data_dir_without_database(args: &DatabaseArgs) -> Result<Option<PathBuf>, StartError> {
    if args.database_url.as_ref().is_some_and(|url| !url.is_empty()) {
        return Ok(None);
    }
    let data_dir = args.data_dir.clone().unwrap_or_else(default_data_dir);
    let is_missing = !has_cluster(&data_dir)?;
    Ok(is_missing.then_some(data_dir))
}

/// Loads the certificate, if one is configured.
fn prepare_tls(args: &ServeArgs) -> Result<Option<(Tls, Renewal)>, StartError> {
    let (Some(certificate), Some(key)) = (args.edge.tls_cert.clone(), args.edge.tls_key.clone()) else {
        return Ok(None);
    };
    let prepared = http::tls::prepare(CertificateFiles { certificate, key });
    prepared.map(Some).map_err(|why| StartError::Settings(format!("TLS: {why}")))
}

/// Returns the database URL, and the embedded cluster if no URL was given. The cluster accepts
/// `db_connections` connections for requests, and `SPARE_CONNECTIONS` more.
pub async fn open_database(args: &DatabaseArgs, db_connections: u16) -> Result<(String, Option<Cluster>), StartError> {
    // An empty value counts as unset: container tools often pass on undefined variables as empty.
    if let Some(url) = args.database_url.as_ref().filter(|url| !url.is_empty()) {
        check_address(url)?;
        return Ok((url.clone(), None));
    }
    let mut options = ClusterOptions::new(args.data_dir.clone().unwrap_or_else(default_data_dir));
    options.bin_dir.clone_from(&args.pg_bin);
    let max_connections = usize::from(db_connections) + SPARE_CONNECTIONS;
    options.settings.push(("max_connections".into(), max_connections.to_string()));
    let cluster = tokio::task::spawn_blocking(move || Cluster::start(options))
        .await
        .map_err(|panic| Error::Internal(panic.to_string()))??;
    log::info!(
        "running the embedded PostgreSQL {}; the data is in {}",
        cluster.version(),
        cluster.data_dir().display()
    );
    Ok((cluster.url("postgres"), Some(cluster)))
}

/// Runs the migrations. Waits up to [`DATABASE_WAIT`] for a database that is still starting.
async fn migrate_when_reachable(url: &str) -> Result<(), Error> {
    let deadline = tokio::time::Instant::now() + DATABASE_WAIT;
    loop {
        match migrate(url).await {
            Ok(ran) if ran.is_empty() => return Ok(()),
            Ok(ran) => {
                log::info!(migrations = ran.len(); "the schema was brought up to date");
                return Ok(());
            }
            // A database that refuses the login would refuse it again, so there is no retry.
            Err(Error::Unavailable(outage))
                if tokio::time::Instant::now() < deadline && outage.kind != OutageKind::Refused =>
            {
                log::warn!("waiting for the database: {outage}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_for(url: &str) -> String {
        bootstrap_command(&DatabaseArgs { database_url: Some(url.into()), data_dir: None, pg_bin: None })
    }

    #[test]
    fn the_command_for_the_first_key_shows_no_password() {
        let verb = "waybill keys create --bootstrap";
        assert_eq!(command_for("postgres://a@b/c"), format!("{verb} --database-url 'postgres://a@b/c'"));
        for url in [
            "postgres://a:1234@b/c",
            "postgres://a@b/c?password=1234",
            "postgres:///c?host=b&user=a&password=1234",
            "postgres://a:1#234@b/c",
            "postgres://a:1/1234@b/c",
            "host=b user=a password=1234",
        ] {
            let command = command_for(url);
            assert!(command.contains(verb) && !command.contains("234"), "{url}: {command}");
        }
    }
}
