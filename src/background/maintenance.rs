//! Creates the partitions of the event log ahead of time, and drops the old ones.
//!
//! Attaching or archiving a partition may take long and must never hold a connection that a request waits
//! for, so it has a pool of its own (one connection, r2d2) and a plain thread.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::retention::event_log::drop_old_partitions;
use super::retention::{CaughtUp, RetentionSettings};
use super::{Service, report};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::connection::blocking::{BlockingConnections, CONNECT_WITHIN};
use crate::store::tables::log_partitions::{LockBudget, create_log_partitions, read_lock_budget};

const INTERVAL: Duration = Duration::from_secs(10 * 60);

/// The number of days after today whose partitions are created: next week's, too.
const DAYS_AHEAD: i32 = 7;

/// Returns the pool of the maintenance thread. It connects when it is first used.
pub(crate) fn pool(engine: &Engine) -> r2d2::Pool<BlockingConnections> {
    r2d2::Pool::builder()
        .max_size(1)
        .min_idle(Some(0))
        .connection_timeout(CONNECT_WITHIN)
        .error_handler(Box::new(r2d2::NopErrorHandler))
        .build_unchecked(BlockingConnections { url: engine.database().url().to_owned(), runtime: Handle::current() })
}

/// Runs one round. Blocks the thread.
pub(crate) fn run_once(engine: &Engine, pool: &r2d2::Pool<BlockingConnections>) -> Result<(), Error> {
    let mut conn = pool.get().map_err(|error| Error::unavailable(error.to_string()))?;
    let partitions = create_log_partitions(&mut conn, DAYS_AHEAD)?;
    log::debug!(partitions; "partitions of the event log were created");
    check_locks(engine, read_lock_budget(&mut conn)?);
    Ok(())
}

/// Warns before reads of the event log fail because the event log has too many partitions.
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

/// Runs the first round before the server accepts requests: a statement that writes to the log while a
/// partition is attached fails.
pub(crate) async fn prepare(engine: &Engine) {
    let (round_engine, pool) = (engine.clone(), pool(engine));
    if let Err(error) = on_thread(move || run_once(&round_engine, &pool)).await {
        report("maintenance", &error);
    }
}

/// Runs until the server stops.
pub(crate) async fn run(engine: Engine, settings: RetentionSettings, shutdown: CancellationToken) {
    let (pool, caught_up) = (pool(&engine), Arc::<CaughtUp>::default());
    let service = Service::every("maintenance", INTERVAL);
    service
        .run(engine, shutdown, |engine| {
            let (pool, settings, caught_up) = (pool.clone(), settings.clone(), caught_up.clone());
            async move {
                let round = move || {
                    let created = run_once(&engine, &pool);
                    // Whether or not partitions could be created, old ones are dropped, and their metrics are true.
                    created.and(drop_old_partitions(&engine, &pool, &settings, &caught_up).map(drop))
                };
                on_thread(round).await.map(|()| None)
            }
        })
        .await;
}

/// Runs work on a thread for blocking work.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(Error::Internal(panic.to_string())))
}
