//! The connection pool, and the limits on waiting for a connection.
//!
//! The driver task of a connection belongs to the runtime that opened it. All connections are opened
//! on the main runtime, since a driver on the runtime of an HTTP worker would end with that worker.
//!
//! Before a new connection is handed out, the pool checks which database it leads to: see
//! [`crate::store::tables::histories`].

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{Manager, Metrics, Object, Pool, QueueMode, RecycleError, RecycleResult, Timeouts};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::PoolableConnection;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::domain::doctor::server::PoolFacts;
use crate::domain::history::Histories;
use crate::error::{Error, Outage, OutageKind};
use crate::store::connection::connect::{NotConnected, Opened, open};
use crate::store::connection::stream::Activity;
use crate::store::tables::histories::{Checked, HistoryWatch};

/// The time that a request may wait for the database before it is refused as unavailable.
pub const PATIENCE: Duration = Duration::from_secs(4);

/// The time that a single statement with its own commit may take. It is less than its caller waits, so
/// the caller learns the result.
pub const STATEMENT_LIMIT: Duration = Duration::from_secs(4);

/// The time within which the rest of a response must arrive before its connection is used again; otherwise the connection
/// is closed. A caller that needs only the first row returns the connection while that rest is on its way. But an
/// abandoned statement may run for seconds, and the connection that was returned last is tried first: with a longer wait,
/// a request after an outage would wait for each of them in turn.
///
/// Few statements are abandoned: a read goes on without its client, and a write that is given up closes its connection. A
/// request that the driver has not written yet does not count as one, so its connection is handed out; then the next
/// statement waits behind it.
const IDLE_WITHIN: Duration = Duration::from_millis(10);

/// The time after which an idle connection that nobody uses is closed.
const UNUSED_FOR: Duration = Duration::from_secs(300);

/// The time for which a failure to store anything is reported, if no later attempt succeeds.
const TROUBLE_FOR: Duration = Duration::from_secs(30);

/// The pause between two attempts to reach the database.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The settings of every pooled connection. They do not rely on the database's defaults, limit the
/// time of statements, and make plans independent of statistics.
///
/// - Durability: an acknowledged write is on disk, so `synchronous_commit` must not be off.
/// - Isolation: a statement after a lock must see what the lock's last holder committed, so each
///   statement has its own snapshot.
/// - Plans: the hot tables alternate between empty and full, and a plan for one case is ruinous for
///   the other. Every hot statement is written as a chain of index look-ups.
pub const SETUP: &str = "SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit') = 'off'; \
     SET default_transaction_isolation = 'read committed'; \
     SET statement_timeout = '4s'; SET idle_in_transaction_session_timeout = '15s'; \
     SET lock_timeout = '4s'; SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; \
     SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off; \
     SET max_parallel_workers_per_gather = 0; SET plan_cache_mode = force_generic_plan;";

/// A PostgreSQL database with a connection pool.
#[derive(Clone)]
pub struct Database {
    pool: Pool<ConnectionManager>,
    url: String,
    last_outage: Arc<Mutex<Option<(Instant, Outage)>>>,
    watch: Arc<HistoryWatch>,
}

/// A connection from the pool. It returns to the pool when it is dropped.
pub type PooledConnection = Object<ConnectionManager>;

/// One connection of the pool.
pub struct ManagedConnection {
    connection: AsyncPgConnection,
    activity: Arc<Activity>,
    driver: AbortHandle,
    checked: Checked,
}

impl Drop for ManagedConnection {
    /// Closes a connection that still runs a statement, so that the database rolls back the
    /// transaction as soon as the statement ends.
    fn drop(&mut self) {
        if !self.activity.is_idle() {
            self.driver.abort();
        }
    }
}

impl ManagedConnection {
    /// Returns whether the connection is not known to be closed.
    pub fn is_open(&self) -> bool {
        !self.driver.is_finished()
    }

    /// Returns whether the connection's buffers are too large to keep it.
    pub fn is_oversized(&self) -> bool {
        self.activity.has_huge_buffers()
    }
}

impl Deref for ManagedConnection {
    type Target = AsyncPgConnection;
    fn deref(&self) -> &AsyncPgConnection {
        &self.connection
    }
}

impl DerefMut for ManagedConnection {
    fn deref_mut(&mut self) -> &mut AsyncPgConnection {
        &mut self.connection
    }
}

/// Opens connections for the pool, and checks the ones that are returned to it.
pub struct ConnectionManager {
    url: String,
    runtime: Handle,
    watch: Arc<HistoryWatch>,
}

impl Manager for ConnectionManager {
    type Type = ManagedConnection;
    type Error = NotConnected;

    async fn create(&self) -> Result<ManagedConnection, NotConnected> {
        let (url, watch) = (self.url.clone(), self.watch.clone());
        // If nobody waits any more, the opening ends: it would not count among the connections of the pool.
        let opened = AbortOnDropHandle::new(self.runtime.spawn(async move {
            let Opened { mut connection, activity, driver, .. } = open(&url, SETUP).await?;
            let checked = watch.check(&mut connection).await?;
            Ok(ManagedConnection { connection, activity, driver, checked })
        }));
        opened.await.unwrap_or_else(|panic| Err(std::io::Error::other(panic).into()))
    }

    async fn recycle(&self, connection: &mut ManagedConnection, _: &Metrics) -> RecycleResult<NotConnected> {
        if std::thread::panicking() || connection.is_broken() {
            return Err(RecycleError::message("the connection is broken"));
        }
        let idle = tokio::time::timeout(IDLE_WITHIN, connection.activity.idle()).await;
        idle.map_err(|_| RecycleError::message("the connection still runs a statement whose caller is gone"))?;
        if connection.activity.is_in_transaction() {
            return Err(RecycleError::message("the connection is within a transaction that nobody has ended"));
        }
        if connection.checked == Checked::NotYet {
            // A connection to a standby survives the promotion of the standby.
            connection.checked = self.watch.check(&mut connection.connection).await.map_err(NotConnected::from)?;
        }
        Ok(())
    }
}

impl Database {
    /// Creates the pool without connecting. Must be called on the main runtime.
    ///
    /// The connection that was returned last is used first: the caches of its backend are warm.
    pub fn new(url: &str, connections: usize) -> Result<Self, Error> {
        let watch = Arc::<HistoryWatch>::default();
        let pool =
            Pool::builder(ConnectionManager { url: url.to_owned(), runtime: Handle::current(), watch: watch.clone() })
                .max_size(connections)
                .queue_mode(QueueMode::Lifo)
                .runtime(Runtime::Tokio1)
                .build()
                .map_err(|error| Error::Internal(format!("the connection pool: {error}")))?;
        Ok(Self { pool, url: url.to_owned(), last_outage: Arc::default(), watch })
    }

    /// Returns the maximum number of pooled connections.
    pub fn max_connections(&self) -> usize {
        self.pool.status().max_size
    }

    /// Returns how the pool is used now.
    pub(crate) fn pool_use(&self) -> PoolFacts {
        let status = self.pool.status();
        PoolFacts {
            in_use: status.size.saturating_sub(status.available),
            idle: status.available,
            max: status.max_size,
            waiting: status.waiting,
        }
    }

    /// Returns a connection. Retries refused attempts for at most [`PATIENCE`].
    pub async fn connection(&self) -> Result<PooledConnection, Error> {
        self.connection_by(Instant::now() + PATIENCE).await
    }

    /// Returns a connection. Retries refused attempts until `deadline`.
    pub async fn connection_by(&self, deadline: Instant) -> Result<PooledConnection, Error> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeouts = Timeouts { wait: Some(left), create: Some(left), recycle: Some(left) };
            match self.pool.timeout_get(&timeouts).await {
                Ok(connection) => return Ok(connection),
                Err(error) if Instant::now() + RETRY_PAUSE >= deadline => {
                    return Err(Error::unavailable(format!("no connection: {error}")));
                }
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// Opens a connection outside the pool, for `LISTEN`, which needs a connection of its own.
    pub async fn dedicated(&self) -> Result<Opened, Error> {
        let opening = open(&self.url, "SET statement_timeout = '10s'");
        match tokio::time::timeout(PATIENCE, opening).await {
            Ok(opened) => Ok(opened?),
            Err(_) => Err(Error::unavailable("connecting took too long".into())),
        }
    }

    /// Returns the known histories of the database.
    pub fn histories(&self) -> Arc<Histories> {
        self.watch.histories()
    }

    /// Returns the watch that detects when the database continues from an earlier state.
    pub fn history_watch(&self) -> &HistoryWatch {
        &self.watch
    }

    /// Records the failure of a statement. Only another write can show whether the database can store
    /// data again, so the failure is remembered. If the database is read-only, idle connections are
    /// closed: after a failover, or after the setting is changed back, only new ones accept writes.
    pub fn note_failure(&self, error: &Error) {
        let Error::Unavailable(outage) = error else { return };
        match outage.kind {
            OutageKind::DiskFull | OutageKind::OutOfMemory | OutageKind::TooManyConnections | OutageKind::Broken => {
                *self.last_outage() = Some((Instant::now(), outage.clone()));
            }
            OutageKind::ReadOnly => drop(self.pool.retain(|_, _| false)),
            _ => {}
        }
    }

    /// Records that something was stored.
    pub fn note_success(&self) {
        *self.last_outage() = None;
    }

    /// Returns why a recent write failed, unless a later one has succeeded.
    pub fn recent_outage(&self) -> Option<Outage> {
        let last_outage = self.last_outage();
        last_outage.as_ref().filter(|(at, _)| at.elapsed() < TROUBLE_FOR).map(|(_, outage)| outage.clone())
    }

    fn last_outage(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Outage)>> {
        self.last_outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the URL of the database, which includes the password. Use it only to connect.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Closes idle connections that are not worth keeping: those that keep large buffers because they once carried a
    /// large message, and those that nobody has used for [`UNUSED_FOR`].
    pub fn close_spare_connections(&self) {
        self.close_connections_unused_for(UNUSED_FOR);
    }

    /// Does the same as [`Self::close_spare_connections`], with another time.
    pub fn close_connections_unused_for(&self, time: Duration) {
        drop(self.pool.retain(|connection, uses| !connection.activity.has_large_buffers() && uses.last_used() < time));
    }

    /// Closes the pool. Connections in use are closed when they are returned.
    pub fn close(&self) {
        self.pool.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_the_statement_timeout_that_callers_rely_on() {
        assert!(SETUP.contains(&format!("SET statement_timeout = '{}s';", STATEMENT_LIMIT.as_secs())));
    }
}
