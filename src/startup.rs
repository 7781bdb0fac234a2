//! Putting a server together, and taking it apart again.
//!
//! Start: the address, the database (our own, if none is given), migrations, engine, background
//! services, HTTP. The address is taken first and listened on last: a client that comes too early
//! is turned away, and does not wait. Stop, in the reverse order: no new connections, waiting workers are sent home with
//! a 204, what is in flight is finished, the clocks stop, the database last.

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
use crate::store::connection::migrate::migrate;
use crate::webhook::Client;

/// How long requests in flight may take once the server stops.
const DRAIN_SECONDS: u64 = 5;

/// How long background rounds may take to end.
const BACKGROUND_STOP: Duration = Duration::from_secs(6);

/// How long a database that is just starting is waited for.
const DATABASE_WAIT: Duration = Duration::from_secs(30);

/// Connections that our own PostgreSQL has room for beyond those of requests: two for upkeep and
/// notifications, the rest for `psql` and backups.
const SPARE_CONNECTIONS: usize = 56;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Our own PostgreSQL.
    #[error("{0}")]
    Postgres(#[from] crate::postgres::PostgresError),
    /// Somebody else's PostgreSQL. The address is not repeated: it may hold a password.
    #[error("DATABASE_URL is no address of a PostgreSQL; it should look like postgres://user:password@host:5432/name")]
    DatabaseUrl,
    /// Any database.
    #[error("the database: {0}")]
    Database(#[from] Error),
    /// What is needed to push events.
    #[error("webhooks cannot be sent: {0}")]
    Webhooks(String),
    /// The address.
    #[error("cannot listen on {address}: {cause}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why not.
        cause: std::io::Error,
    },
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
        // Before a database is made: an address that is taken is the commonest mistake.
        let refused = |cause| StartError::Bind { address: args.bind, cause };
        let bound = http::server::bind(args.bind).map_err(refused)?;
        let (url, cluster) = open_database(&args.database, args.db_connections).await?;
        migrate_when_reachable(&url).await?;
        let database = Database::new(&url, usize::from(args.db_connections))?;
        let engine = Engine::new(database, clock, args.engine_settings());
        // Before anybody may publish: the database may have been restored since it was last served.
        engine.check_history().await?;
        background::maintenance::prepare(&engine).await;
        let client = Client::new(&args.webhook_settings()).map_err(StartError::Webhooks)?;
        let shutdown = CancellationToken::new();
        let (server, address) = http::server::serve(bound, &engine, &client, args, DRAIN_SECONDS).map_err(refused)?;
        let background = background::start(&engine, &client, &args.background_settings(), &shutdown);
        let http = server.handle();
        Ok(Server { address, engine, http, http_task: tokio::spawn(server), background, shutdown, cluster })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Its own PostgreSQL, if it runs one.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// Stops everything, in order.
    pub async fn stop(self) {
        self.engine.hub().close();
        self.http.stop(true).await;
        let _ = self.http_task.await;
        self.shutdown.cancel();
        let _ = tokio::time::timeout(BACKGROUND_STOP, self.background.wait()).await;
        self.engine.database().close();
        if let Some(cluster) = self.cluster {
            // Blocks for some milliseconds; on a thread that may.
            let stopped = tokio::task::spawn_blocking(move || cluster.stop()).await;
            if let Ok(Err(error)) = stopped {
                log::error!("PostgreSQL did not stop cleanly: {error}");
            }
        }
    }
}

/// Returns the database's URL, and our own cluster where none was given, with room for this many
/// connections of requests.
pub async fn open_database(args: &DatabaseArgs, db_connections: u16) -> Result<(String, Option<Cluster>), StartError> {
    // Set to nothing is not set: a variable that is passed on from nowhere.
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
    log::info!("running PostgreSQL {} of its own; the data is in {}", cluster.version(), cluster.data_dir().display());
    Ok((cluster.url("postgres"), Some(cluster)))
}

/// Migrates, waiting for a database that is just starting.
async fn migrate_when_reachable(url: &str) -> Result<(), Error> {
    let deadline = tokio::time::Instant::now() + DATABASE_WAIT;
    loop {
        match migrate(url).await {
            Ok(ran) if ran.is_empty() => return Ok(()),
            Ok(ran) => {
                log::info!(migrations = ran.len(); "the schema was brought up to date");
                return Ok(());
            }
            // One that does not want us is not waited for.
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
