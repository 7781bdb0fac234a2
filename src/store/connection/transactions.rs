//! How transactions begin and end. Which statements belong together is the engine's business.

use std::time::Duration;

use diesel_async::{AnsiTransactionManager, AsyncPgConnection, SimpleAsyncConnection, TransactionManager};

use crate::error::Error;

/// Begins a transaction whose statements may take this long, each. One trip to the database.
pub async fn begin(conn: &mut AsyncPgConnection, limit: Duration) -> Result<(), Error> {
    let sql = format!("BEGIN; SET LOCAL statement_timeout = {}", limit.as_millis().max(1));
    Ok(AnsiTransactionManager::begin_transaction_sql(conn, &sql).await?)
}

/// Commits it.
pub async fn commit(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    Ok(AnsiTransactionManager::commit_transaction(conn).await?)
}

/// Takes it back.
pub async fn roll_back(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    Ok(AnsiTransactionManager::rollback_transaction(conn).await?)
}

/// Limits how long the statements of this transaction wait for a lock.
pub async fn limit_lock_wait(conn: &mut AsyncPgConnection, limit: Duration) -> Result<(), Error> {
    let sql = format!("SET LOCAL lock_timeout = {}", limit.as_millis().max(1));
    Ok(conn.batch_execute(&sql).await?)
}
