//! The pool of connections, and how long anybody waits for one.
//!
//! A connection's driver task belongs to the runtime that opened it, so all of them are
//! opened on the main runtime: one opened on an HTTP worker's would die with that worker.

use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::Timeouts;
use diesel::ConnectionError;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::{Object, Pool};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod};
use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::connect::connect;
use crate::error::Error;

/// How long a request may wait for the database before it is told to come back later.
pub const PATIENCE: Duration = Duration::from_secs(4);

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
     SET statement_timeout = '10s'; SET idle_in_transaction_session_timeout = '15s'; \
     SET lock_timeout = '4s'; SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; \
     SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off; SET plan_cache_mode = force_generic_plan;";

/// A PostgreSQL database, reached through a handful of connections.
#[derive(Clone)]
pub struct Database {
    pool: Pool<AsyncPgConnection>,
    url: String,
}

impl Database {
    /// Prepares the pool; connects to nothing yet. Must be called on the main runtime.
    pub fn new(url: &str, connections: usize) -> Result<Self, Error> {
        let runtime = Handle::current();
        let mut config = ManagerConfig::default();
        config.recycling_method = RecyclingMethod::Fast;
        config.custom_setup = Box::new(move |url| {
            let url = url.to_owned();
            let opened = runtime.spawn(async move { connect(&url, SETUP).await });
            async move { opened.await.map_err(|error| ConnectionError::BadConnection(error.to_string()))? }.boxed()
        });
        let manager = AsyncDieselConnectionManager::new_with_config(url, config);
        let pool = Pool::builder(manager)
            .max_size(connections)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| Error::Internal(format!("the connection pool: {error}")))?;
        Ok(Self { pool, url: url.to_owned() })
    }

    /// A connection, waited for at most [`PATIENCE`], however often the database refuses.
    pub async fn connection(&self) -> Result<Object<AsyncPgConnection>, Error> {
        let deadline = Instant::now() + PATIENCE;
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
    pub async fn dedicated(&self) -> Result<AsyncPgConnection, Error> {
        let opening = connect(&self.url, "SET statement_timeout = '10s'");
        match tokio::time::timeout(PATIENCE, opening).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(Error::unavailable(error.to_string())),
            Err(_) => Err(Error::unavailable("connecting took too long".into())),
        }
    }

    /// Where the database is, password included: for our own connections only.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Closes the pool; connections in use end when they are given back.
    pub fn close(&self) {
        self.pool.close();
    }
}
