//! Upkeep: tomorrow's partition of the audit trail, and what may be forgotten.
//!
//! Upkeep may take long and must never hold a connection that a request waits for, so it has
//! a pool of its own (one connection, r2d2) and a plain thread.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{Service, report};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::blocking::BlockingConnections;
use crate::store::maintenance::{
    LockBudget, create_log_partitions, forget_claim_requests, forget_workers, read_lock_budget,
};

const INTERVAL: Duration = Duration::from_secs(10 * 60);

/// How many days of the log are prepared ahead.
const DAYS_AHEAD: i32 = 3;

/// How long to wait for the upkeep connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The pool of the upkeep thread; opens nothing until it is used.
pub fn pool(engine: &Engine) -> r2d2::Pool<BlockingConnections> {
    r2d2::Pool::builder()
        .max_size(1)
        .min_idle(Some(0))
        .connection_timeout(CONNECT_WITHIN)
        .error_handler(Box::new(r2d2::NopErrorHandler))
        .build_unchecked(BlockingConnections { url: engine.database().url().to_owned(), runtime: Handle::current() })
}

/// Does one round. Blocks.
pub fn run_once(engine: &Engine, pool: &r2d2::Pool<BlockingConnections>) -> Result<(), Error> {
    let mut conn = pool.get().map_err(|error| Error::unavailable(error.to_string()))?;
    let partitions = create_log_partitions(&mut conn, DAYS_AHEAD)?;
    let requests = forget_claim_requests(&mut conn)?;
    let workers = forget_workers(&mut conn)?;
    log::debug!(partitions, requests, workers; "upkeep done");
    check_locks(engine, read_lock_budget(&mut conn)?);
    Ok(())
}

/// Warns before reads of trails fail because the event log has too many partitions.
fn check_locks(engine: &Engine, budget: LockBudget) {
    engine.metrics().event_log_partitions.set(budget.partitions);
    let reads = engine.database().max_connections();
    if let Some(needed) = budget.needed_for(reads) {
        log::warn!(
            "the event log has {} partitions: {reads} reads of trails at the same time need {} locks, and the database \
             has room for {}; set max_locks_per_transaction to at least {needed}, or lower --db-connections",
            budget.partitions,
            budget.locks_per_read * reads as i64,
            budget.capacity,
        );
    }
}

/// Runs the first round, before anybody may write: a partition that is attached while somebody
/// writes fails that statement.
pub async fn prepare(engine: &Engine) {
    if let Err(error) = round(engine.clone(), pool(engine)).await {
        report("maintenance", &error);
    }
}

/// Runs until the server stops.
pub async fn run(engine: Engine, shutdown: CancellationToken) {
    let pool = pool(&engine);
    let service = Service::every("maintenance", INTERVAL);
    service.run(engine, shutdown, |engine| round(engine, pool.clone())).await;
}

async fn round(engine: Engine, pool: r2d2::Pool<BlockingConnections>) -> Result<Option<Duration>, Error> {
    let round = tokio::task::spawn_blocking(move || run_once(&engine, &pool)).await;
    round.unwrap_or_else(|panic| Err(Error::Internal(panic.to_string()))).map(|()| None)
}
