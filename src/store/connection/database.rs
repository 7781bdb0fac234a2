//! The pool of connections, and how long anybody waits for one.
//!
//! A connection's driver task belongs to the runtime that opened it, so all of them are
//! opened on the main runtime: one opened on an HTTP worker's would die with that worker.
//!
//! Each new connection is asked which database it leads to before it is handed out: see
//! [`crate::store::tables::histories`].

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{Manager, Metrics, Object, Pool, RecycleError, RecycleResult, Timeouts};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::PoolableConnection;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::domain::history::Histories;
use crate::error::{Error, Outage, OutageKind};
use crate::store::connection::connect::{NotConnected, Opened, open};
use crate::store::connection::stream::Activity;
use crate::store::tables::histories::{Checked, HistoryWatch};

/// How long a request may wait for the database before it is told to come back later.
pub const PATIENCE: Duration = Duration::from_secs(4);

/// How long a statement may take that commits by itself: less than its caller waits for the answer,
/// so that the caller knows what came of it.
pub const STATEMENT_LIMIT: Duration = Duration::from_secs(4);

/// How long a connection may go on with a statement that nobody waits for any more before it is
/// given up.
const IDLE_WITHIN: Duration = Duration::from_millis(100);

/// For how long it is remembered that the database could not store anything, if nobody tries.
const TROUBLE_FOR: Duration = Duration::from_secs(30);

/// Pause between two tries to reach a database that is away.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Every pooled connection: promises that hold whatever the database's own defaults are,
/// bounded statements, and plans that do not depend on statistics.
///
/// What is acknowledged is on disk, so commits are not left to be written later. Statements
/// that follow a lock must see what its last holder committed, so each has a snapshot of its
/// own.
///
/// The hot tables swing between empty and full, and a plan made for one is ruinous for the
/// other; every hot statement is written to be a chain of index look-ups.
pub const SETUP: &str = "SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit') = 'off'; \
     SET default_transaction_isolation = 'read committed'; \
     SET statement_timeout = '4s'; SET idle_in_transaction_session_timeout = '15s'; \
     SET lock_timeout = '4s'; SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; \
     SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off; SET plan_cache_mode = force_generic_plan;";

/// A PostgreSQL database, reached through a handful of connections.
#[derive(Clone)]
pub struct Database {
    pool: Pool<ConnectionManager>,
    url: String,
    trouble: Arc<Mutex<Option<(Instant, Outage)>>>,
    watch: Arc<HistoryWatch>,
}

/// A connection out of the pool.
pub type PooledConnection = Object<ConnectionManager>;

/// One connection of the pool.
pub struct ManagedConnection {
    connection: AsyncPgConnection,
    activity: Arc<Activity>,
    driver: AbortHandle,
    checked: Checked,
}

impl Drop for ManagedConnection {
    /// One that is dropped with a statement under way is closed at once, so that the database takes
    /// the transaction back as soon as the statement is over.
    fn drop(&mut self) {
        if !self.activity.is_idle() {
            self.driver.abort();
        }
    }
}

impl ManagedConnection {
    /// Whether it is not known to be closed.
    pub fn is_open(&self) -> bool {
        !self.driver.is_finished()
    }

    /// Whether its buffers are too large for it to be kept.
    pub fn is_oversized(&self) -> bool {
        self.activity.has_carried_very_much()
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

/// Opens connections for the pool, and looks at those that come back.
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
        let opened = self.runtime.spawn(async move {
            let Opened { mut connection, activity, driver, .. } = open(&url, SETUP).await?;
            let checked = watch.check(&mut connection).await?;
            Ok(ManagedConnection { connection, activity, driver, checked })
        });
        opened.await.unwrap_or_else(|panic| Err(std::io::Error::other(panic).into()))
    }

    async fn recycle(&self, connection: &mut ManagedConnection, _: &Metrics) -> RecycleResult<NotConnected> {
        if std::thread::panicking() || connection.is_broken() {
            return Err(RecycleError::message("it is broken"));
        }
        let idle = tokio::time::timeout(IDLE_WITHIN, connection.activity.idle()).await;
        idle.map_err(|_| RecycleError::message("it goes on with a statement that nobody waits for"))?;
        if connection.checked == Checked::NotYet {
            // Connections to a standby outlive its promotion.
            connection.checked = self.watch.check(&mut connection.connection).await.map_err(NotConnected::from)?;
        }
        Ok(())
    }
}

impl Database {
    /// Prepares the pool; connects to nothing yet. Must be called on the main runtime.
    pub fn new(url: &str, connections: usize) -> Result<Self, Error> {
        let watch = Arc::<HistoryWatch>::default();
        let pool =
            Pool::builder(ConnectionManager { url: url.to_owned(), runtime: Handle::current(), watch: watch.clone() })
                .max_size(connections)
                .runtime(Runtime::Tokio1)
                .build()
                .map_err(|error| Error::Internal(format!("the connection pool: {error}")))?;
        Ok(Self { pool, url: url.to_owned(), trouble: Arc::default(), watch })
    }

    /// Returns how many connections there may be.
    pub fn max_connections(&self) -> usize {
        self.pool.status().max_size
    }

    /// A connection, waited for at most [`PATIENCE`], however often the database refuses.
    pub async fn connection(&self) -> Result<PooledConnection, Error> {
        self.connection_by(Instant::now() + PATIENCE).await
    }

    /// The same, waited for until then.
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

    /// A connection of its own, outside the pool: for `LISTEN`, which must not be pooled.
    pub async fn dedicated(&self) -> Result<Opened, Error> {
        let opening = open(&self.url, "SET statement_timeout = '10s'");
        match tokio::time::timeout(PATIENCE, opening).await {
            Ok(opened) => Ok(opened?),
            Err(_) => Err(Error::unavailable("connecting took too long".into())),
        }
    }

    /// Returns what is known of the database's histories.
    pub fn histories(&self) -> Arc<Histories> {
        self.watch.histories()
    }

    /// Returns what notices that the database has gone back.
    pub fn history_watch(&self) -> &HistoryWatch {
        &self.watch
    }

    /// Takes note of a statement that failed. Whether there is room can only be told by trying, so
    /// that is remembered. If the database is read-only, connections that are at rest are closed:
    /// after a failover, or when the setting is taken back, only new ones take writes again.
    pub fn note_failure(&self, error: &Error) {
        let Error::Unavailable(outage) = error else { return };
        match outage.kind {
            OutageKind::DiskFull | OutageKind::OutOfMemory | OutageKind::TooManyConnections | OutageKind::Broken => {
                *self.trouble() = Some((Instant::now(), outage.clone()))
            }
            OutageKind::ReadOnly => drop(self.pool.retain(|_, _| false)),
            _ => {}
        }
    }

    /// Something was stored.
    pub fn note_success(&self) {
        *self.trouble() = None;
    }

    /// Returns why nothing could be stored of late, unless something has been since.
    pub fn recent_trouble(&self) -> Option<Outage> {
        let trouble = self.trouble();
        trouble.as_ref().filter(|(at, _)| at.elapsed() < TROUBLE_FOR).map(|(_, outage)| outage.clone())
    }

    fn trouble(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Outage)>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the database is, password included: for our own connections only.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Closes connections at rest that keep large buffers, because they once carried much.
    pub fn close_large(&self) {
        drop(self.pool.retain(|connection, _| !connection.activity.has_carried_much()));
    }

    /// Closes the pool; connections in use end when they are given back.
    pub fn close(&self) {
        self.pool.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_the_limit_that_callers_rely_on() {
        assert!(SETUP.contains(&format!("SET statement_timeout = '{}s';", STATEMENT_LIMIT.as_secs())));
    }
}
