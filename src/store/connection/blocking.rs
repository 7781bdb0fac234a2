//! Blocking connections for plain threads, pooled by r2d2, over the same driver as all others.
//!
//! r2d2 opens connections on threads of its own, which know no runtime, while a connection's
//! driver must live on the main one: so the pool is told which that is.

use std::future::Future;

use diesel::ConnectionError;
use diesel_async::AsyncPgConnection;
use diesel_async::async_connection_wrapper::{AsyncConnectionWrapper, BlockOn};
use tokio::runtime::Handle;

use crate::store::connection::connect::connect;

/// A connection that blocks, over the same driver as all others: no libpq.
pub type BlockingConnection = AsyncConnectionWrapper<AsyncPgConnection, MainRuntime>;

/// The main runtime, as blocking connections see it.
pub struct MainRuntime(Handle);

impl BlockOn for MainRuntime {
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    /// Called when a connection is wrapped, which only happens inside
    /// [`r2d2::ManageConnection::connect`] below, where the runtime has been entered.
    fn get_runtime() -> Self {
        MainRuntime(Handle::current())
    }
}

/// Upkeep may be slow, but must not keep others waiting behind a lock that it waits for.
const SETUP: &str = "SET statement_timeout = '60s'; SET lock_timeout = '1s'";

/// Opens blocking connections.
#[derive(Debug)]
pub struct BlockingConnections {
    /// Where to.
    pub url: String,
    /// Where their drivers live.
    pub runtime: Handle,
}

impl r2d2::ManageConnection for BlockingConnections {
    type Connection = BlockingConnection;
    type Error = ConnectionError;

    fn connect(&self) -> Result<BlockingConnection, ConnectionError> {
        let _inside = self.runtime.enter();
        let connection = self.runtime.block_on(connect(&self.url, SETUP))?;
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
