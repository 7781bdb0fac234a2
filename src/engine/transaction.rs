//! Transactions, limited to the time that their callers have left.
//!
//! `transaction!(engine, |conn| …)` runs several statements. `statement!(engine, |conn| …)` runs a single
//! statement that commits implicitly. Both retry after a conflict with a concurrent transaction.
//!
//! This module decides whether a failure means that nothing was done, or that the outcome is unknown.
//! Until the `COMMIT` of a transaction is sent, nothing has been done. Once it is sent, or once a single
//! statement is sent, a lost connection leaves the outcome unknown. An error that the database reports
//! always means that nothing was done.

use std::time::Duration;

use diesel_async::AsyncPgConnection;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{Error, OutageKind};
use crate::store::connection::database::{Database, PooledConnection, STATEMENT_LIMIT};
use crate::store::connection::transactions::{begin, commit, roll_back};

use crate::engine::batching::deadline::{connection_to_write, statement_limit};

/// The time limit of a statement in a transaction that no caller waits for.
const BACKGROUND_LIMIT: Duration = Duration::from_secs(10);

/// The time after which an unresponsive database is not waited for any longer. The work is abandoned, and
/// its connection is closed.
pub(crate) const GIVE_UP_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A single statement, which commits implicitly. With less than [`STATEMENT_LIMIT`] left it becomes a
    /// transaction, see [`Attempt::begin`].
    Statement,
    /// Any number of statements between `BEGIN` and `COMMIT`.
    Transaction,
}

impl Kind {
    /// Returns whether all queues and due times must be scanned, because the transaction may have been
    /// committed. Callers that run a single statement know what it may have changed and see to it.
    pub(crate) fn may_have_changed_more(self, error: &Error) -> bool {
        self == Kind::Transaction && matches!(error, Error::OutcomeUnknown(_))
    }
}

/// One attempt to run a transaction or a single statement.
pub(crate) struct Attempt {
    connection: PooledConnection,
    kind: Kind,
    deadline: Instant,
}

impl Attempt {
    /// Takes a connection and begins the transaction. Fails if no caller waits for it any more.
    pub(crate) async fn begin(database: &Database, kind: Kind) -> Result<Self, Error> {
        let connection = connection_to_write(database).await?;
        let limit = statement_limit();
        // Every connection has a `statement_timeout` of `STATEMENT_LIMIT`. A shorter limit needs a
        // transaction around the statement, which costs two more round trips. Only calls that have
        // waited for long need one.
        let kind = if limit.is_some_and(|limit| limit < STATEMENT_LIMIT) { Kind::Transaction } else { kind };
        let mut attempt = Attempt { connection, kind, deadline: Instant::now() + limit.unwrap_or(GIVE_UP_AFTER) };
        if kind == Kind::Transaction {
            let begun = begin(&mut attempt.connection, limit.unwrap_or(BACKGROUND_LIMIT));
            if let Err(error) = TimeLimit(Some(attempt.deadline)).enforce(begun).await {
                return Err(attempt.fail(database, error).await);
            }
        }
        Ok(attempt)
    }

    pub(crate) fn connection(&mut self) -> &mut AsyncPgConnection {
        &mut self.connection
    }

    pub(crate) fn time_limit(&self) -> TimeLimit {
        // A single statement may already be committed, so its result is waited for.
        TimeLimit((self.kind == Kind::Transaction).then_some(self.deadline))
    }

    /// Commits if `result` is a success, and rolls back otherwise.
    pub(crate) async fn finish<T>(mut self, database: &Database, result: Result<T, Error>) -> Result<T, Error> {
        let value = match result {
            Ok(value) => value,
            Err(error) if self.kind == Kind::Statement => return Err(self.fail(database, error.of_commit()).await),
            Err(error) => return Err(self.fail(database, error).await),
        };
        if self.kind == Kind::Statement {
            self.return_connection();
            return Ok(value);
        }
        match timeout(GIVE_UP_AFTER, commit(&mut self.connection)).await {
            Ok(Ok(())) => Ok(value),
            Ok(Err(error)) => Err(self.fail(database, error.of_commit()).await),
            Err(_) => Err(Error::OutcomeUnknown("a commit was not answered".into())),
        }
    }

    /// Returns the connection to the pool, or closes it if its buffers have grown too large.
    fn return_connection(self) {
        if self.connection.is_oversized() {
            drop(PooledConnection::take(self.connection));
        }
    }

    /// Rolls back and returns the connection to the pool, or closes a connection that cannot be used again.
    /// After a timeout a statement may still be running on it.
    async fn fail(mut self, database: &Database, error: Error) -> Error {
        let is_unusable = match &error {
            Error::OutcomeUnknown(_) => true,
            Error::Unavailable(outage) => {
                matches!(outage.kind, OutageKind::Lost | OutageKind::ReadOnly | OutageKind::TimeUp)
            }
            _ => false,
        };
        if is_unusable {
            drop(PooledConnection::take(self.connection));
        } else if self.kind == Kind::Transaction {
            // An error of the rollback is ignored: the first error is the cause.
            let _ = timeout(STATEMENT_LIMIT, roll_back(&mut self.connection)).await;
        }
        database.note_failure(&error);
        error
    }
}

/// The time by which the statements before a commit must have ended. `None` means no limit.
pub(crate) struct TimeLimit(Option<Instant>);

impl TimeLimit {
    /// Runs `work`, and drops it when the time is over.
    pub(crate) async fn enforce<T>(self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match self.0 {
            Some(deadline) => timeout_at(deadline, work).await.unwrap_or_else(|_| Err(not_in_time())),
            None => work.await,
        }
    }
}

fn not_in_time() -> Error {
    Error::outage(OutageKind::TimeUp, "the transaction was not over in time, and is not committed")
}

/// Runs a transaction, and retries it after a conflict: `transaction!(engine, |conn| …)`.
macro_rules! transaction {
    ($engine:expr, |$conn:ident| $work:expr) => {
        crate::engine::transaction::attempts!($engine, Transaction, |$conn| $work)
    };
}
pub(crate) use transaction;

/// Runs a single statement that commits implicitly, and retries it after a conflict:
/// `statement!(engine, |conn| …)`.
macro_rules! statement {
    ($engine:expr, |$conn:ident| $work:expr) => {
        crate::engine::transaction::attempts!($engine, Statement, |$conn| $work)
    };
}
pub(crate) use statement;

macro_rules! attempts {
    ($engine:expr, $kind:ident, |$conn:ident| $work:expr) => {{
        let mut retries = 0;
        loop {
            let kind = crate::engine::transaction::Kind::$kind;
            let mut attempt = crate::engine::transaction::Attempt::begin($engine.database(), kind).await?;
            let time_limit = attempt.time_limit();
            let work = async {
                let $conn: &mut diesel_async::AsyncPgConnection = attempt.connection();
                let result: Result<_, crate::error::Error> = $work;
                result
            };
            let result = time_limit.enforce(work).await;
            match attempt.finish($engine.database(), result).await {
                Err(error) if error.is_conflict() && retries < crate::engine::CONFLICT_RETRIES => retries += 1,
                Err(error) if kind.may_have_changed_more(&error) => {
                    $engine.notify_after_unknown_commit();
                    break Err(error);
                }
                outcome => break outcome,
            }
        }
    }};
}
pub(crate) use attempts;
