//! Starts and stops a server.
//!
//! Start order: bind the address, open the database (an embedded PostgreSQL if no URL is given), run
//! migrations, create the engine, start HTTP and the background services. The address is bound first
//! but listened on last, so early clients are refused at once instead of hanging.
//!
//! Stop order: waiting workers get a 204, new connections are refused, requests in flight finish, the
//! background services stop, and the database closes last.

use std::net::SocketAddr;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::background;
use crate::config::{DatabaseArgs, ServeArgs};
use crate::engine::Engine;
use crate::engine::clock::Clock;
use crate::error::{Error, OutageKind};
use crate::http;
use crate::postgres::{Cluster, ClusterOptions, default_data_dir};
use crate::store::connection::connect::is_address;
use crate::store::connection::database::Database;
use crate::store::connection::migrate::{enforce_rules, migrate};
use crate::webhook::Client;

/// The time that requests in flight may take once the server stops.
const DRAIN_SECONDS: u64 = 5;

/// The time that background services may take to finish their current round.
const BACKGROUND_STOP: Duration = Duration::from_secs(6);

/// The time to wait for a database that is still starting.
const DATABASE_WAIT: Duration = Duration::from_secs(30);

/// Connections that the embedded PostgreSQL accepts in addition to those for requests: two for
/// maintenance and notifications, the rest for `psql` and backups.
const SPARE_CONNECTIONS: usize = 56;

/// The reason why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The embedded PostgreSQL failed.
    #[error("{0}")]
    Postgres(#[from] crate::postgres::PostgresError),
    /// The database URL is malformed. The message does not repeat it because it may contain a password.
    #[error("DATABASE_URL is not a PostgreSQL URL; expected the form postgres://user:password@host:5432/name")]
    DatabaseUrl,
    #[error("database: {0}")]
    Database(#[from] Error),
    /// The webhook client could not be created.
    #[error("webhooks cannot be sent: {0}")]
    Webhooks(String),
    #[error("cannot listen on {address}: {cause}")]
    Bind { address: SocketAddr, cause: std::io::Error },
}

/// A running server.
pub struct Server {
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
        // Before the database is initialised: an address in use is the most common mistake.
        let refused = |cause| StartError::Bind { address: args.bind, cause };
        let bound = http::server::bind(args.bind).map_err(refused)?;
        let (url, cluster) = open_database(&args.database, args.db_connections).await?;
        migrate_when_reachable(&url).await?;
        let database = Database::new(&url, usize::from(args.db_connections))?;
        if args.check_rules.unwrap_or(cfg!(debug_assertions)) {
            enforce_rules(&mut *database.connection().await?).await?;
        }
        let engine = Engine::new(database, clock, args.engine_settings());
        // Before the first publish: the database may have been restored since the server last ran.
        engine.check_history().await?;
        background::maintenance::prepare(&engine).await;
        let client = Client::new(&args.webhook_settings()).map_err(StartError::Webhooks)?;
        let shutdown = CancellationToken::new();
        let (server, address) = http::server::serve(bound, &engine, &client, args, DRAIN_SECONDS).map_err(refused)?;
        let background = background::start(&engine, &client, &args.background_settings(), &shutdown);
        let http = server.handle();
        Ok(Server { address, engine, http, http_task: tokio::spawn(server), background, shutdown, cluster })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
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
        self.http.stop(true).await;
        let _ = self.http_task.await;
        self.shutdown.cancel();
        let _ = tokio::time::timeout(BACKGROUND_STOP, self.background.wait()).await;
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

/// Returns the database URL, and the embedded cluster if no URL was given. The cluster accepts
/// `db_connections` connections for requests, and `SPARE_CONNECTIONS` more.
pub async fn open_database(args: &DatabaseArgs, db_connections: u16) -> Result<(String, Option<Cluster>), StartError> {
    // An empty value counts as unset: container tools often pass on undefined variables as empty.
    if let Some(url) = args.database_url.as_ref().filter(|url| !url.is_empty()) {
        return if is_address(url) { Ok((url.clone(), None)) } else { Err(StartError::DatabaseUrl) };
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
