//! Begins and ends transactions. The engine decides which statements belong together.

use std::time::Duration;

use diesel_async::{AnsiTransactionManager, AsyncPgConnection, SimpleAsyncConnection, TransactionManager};

use crate::error::Error;

/// Begins a transaction in which each statement may take up to `limit`. Needs one round trip.
pub(crate) async fn begin(conn: &mut AsyncPgConnection, limit: Duration) -> Result<(), Error> {
    let sql = format!("BEGIN; SET LOCAL statement_timeout = {}", limit.as_millis().max(1));
    Ok(AnsiTransactionManager::begin_transaction_sql(conn, &sql).await?)
}

/// Begins a transaction as [`begin`] does. It is rolled back if it waits longer than `idle_limit` for its next statement.
pub(crate) async fn begin_limited(
    conn: &mut AsyncPgConnection,
    limit: Duration,
    idle_limit: Duration,
) -> Result<(), Error> {
    let idle_limit = idle_limit.as_millis().max(1);
    // The limit of statements comes last: it limits those behind it.
    let sql = format!(
        "BEGIN; SET LOCAL idle_in_transaction_session_timeout = {idle_limit}; SET LOCAL statement_timeout = {}",
        limit.as_millis().max(1)
    );
    Ok(AnsiTransactionManager::begin_transaction_sql(conn, &sql).await?)
}

/// Commits the transaction.
pub(crate) async fn commit(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    Ok(AnsiTransactionManager::commit_transaction(conn).await?)
}

/// Rolls the transaction back.
pub(crate) async fn roll_back(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    Ok(AnsiTransactionManager::rollback_transaction(conn).await?)
}

/// Limits the time that each statement of the transaction waits for a lock.
pub(crate) async fn limit_lock_wait(conn: &mut AsyncPgConnection, limit: Duration) -> Result<(), Error> {
    let sql = format!("SET LOCAL lock_timeout = {}", limit.as_millis().max(1));
    Ok(conn.batch_execute(&sql).await?)
}
