//! Blocking connections for plain threads, pooled by r2d2, over the same driver as all others.
//!
//! r2d2 opens connections on its own threads, outside any Tokio runtime. The driver task of a
//! connection must run on the main runtime, so the pool holds a handle to it.

use std::future::Future;
use std::time::Duration;

use diesel::{ConnectionError, ConnectionResult};
use diesel_async::AsyncPgConnection;
use diesel_async::async_connection_wrapper::{AsyncConnectionWrapper, BlockOn};
use tokio::runtime::Handle;

use crate::store::connection::connect::connect;

/// A blocking connection over the same driver as all others. It does not need libpq.
pub(crate) type BlockingConnection = AsyncConnectionWrapper<AsyncPgConnection, MainRuntime>;

/// The main runtime, on which blocking connections wait.
pub(crate) struct MainRuntime(Handle);

impl BlockOn for MainRuntime {
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    /// Returns the current runtime. Connections are wrapped only in [`r2d2::ManageConnection::connect`]
    /// below, which has entered the main runtime.
    fn get_runtime() -> Self {
        MainRuntime(Handle::current())
    }
}

/// Maintenance statements may be slow. They must not wait long for a lock, because other statements
/// queue up behind a waiting lock request.
const SETUP: &str = "SET statement_timeout = '60s'; SET lock_timeout = '1s'";

/// The maximum time to open a connection. A database behind a dead network never answers.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Opens blocking connections.
#[derive(Debug)]
pub(crate) struct BlockingConnections {
    pub url: String,
    /// The runtime on which their driver tasks run.
    pub runtime: Handle,
}

impl r2d2::ManageConnection for BlockingConnections {
    type Connection = BlockingConnection;
    type Error = ConnectionError;

    fn connect(&self) -> Result<BlockingConnection, ConnectionError> {
        let _entered = self.runtime.enter();
        let connection = self.runtime.block_on(connect_within(CONNECT_WITHIN, &self.url))?;
        Ok(BlockingConnection::from(connection))
    }

    fn is_valid(&self, connection: &mut BlockingConnection) -> Result<(), ConnectionError> {
        use diesel::connection::SimpleConnection;
        connection.batch_execute("SELECT 1").map_err(ConnectionError::CouldntSetupConfiguration)
    }

    fn has_broken(&self, connection: &mut BlockingConnection) -> bool {
        diesel::r2d2::R2D2Connection::is_broken(connection)
    }
}

async fn connect_within(limit: Duration, url: &str) -> ConnectionResult<AsyncPgConnection> {
    let connected = tokio::time::timeout(limit, connect(url, SETUP)).await;
    connected.unwrap_or_else(|_| Err(ConnectionError::BadConnection("connecting took too long".to_owned())))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_database_that_does_not_answer_is_not_waited_for() {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("postgres://{}/queue", silent.local_addr().expect("an address"));
        let connecting = connect_within(Duration::from_millis(20), &url);
        let failure = tokio::time::timeout(Duration::from_secs(20), connecting).await.expect("an end");
        assert!(failure.is_err_and(|error| error.to_string().contains("took too long")));
    }
}
