//! Transactions, each within the time of those who wait for it.
//!
//! `transaction!(engine, |conn| …)` runs several statements, `statement!(engine, |conn| …)` one that
//! is a transaction of its own; both run it again if it fell victim to another. What a failure
//! means is decided here. Until a transaction's `COMMIT` is sent nothing has been done, whatever
//! happens. Once it is sent, or the one statement is, a lost connection leaves the outcome unknown;
//! an error that the database itself reports is still a refusal.

use std::time::Duration;

use diesel_async::AsyncPgConnection;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{Error, OutageKind};
use crate::store::connection::database::{Database, PooledConnection, STATEMENT_LIMIT};
use crate::store::connection::transactions::{begin, commit, roll_back};

use crate::engine::batching::deadline::{connection_to_write, statement_limit};

/// How long a statement of a transaction may take that nobody waits for.
const BACKGROUND_LIMIT: Duration = Duration::from_secs(10);

/// A database that has not answered for so long will not: whatever was asked is given up, and its
/// connection is closed.
pub(crate) const GIVE_UP_AFTER: Duration = Duration::from_secs(30);

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One statement, which commits by itself unless too little time is left.
    Statement,
    /// As many as are needed.
    Transaction,
}

impl Kind {
    /// Returns whether others have to look for what was perhaps committed. Whoever runs one statement
    /// knows best what that may have been.
    pub(crate) fn may_have_changed_more(self, error: &Error) -> bool {
        self == Kind::Transaction && matches!(error, Error::OutcomeUnknown(_))
    }
}

/// One try.
pub(crate) struct Attempt {
    connection: PooledConnection,
    kind: Kind,
    until: Instant,
}

impl Attempt {
    /// Takes a connection and begins, unless nobody waits any more.
    pub(crate) async fn begin(database: &Database, kind: Kind) -> Result<Self, Error> {
        let connection = connection_to_write(database).await?;
        let limit = statement_limit();
        // Connections limit statements by themselves. To be limited to less a statement needs a
        // transaction around it, which costs two more trips to the database; but only calls that
        // have waited for long have less.
        let kind = if limit.is_some_and(|limit| limit < STATEMENT_LIMIT) { Kind::Transaction } else { kind };
        let mut attempt = Attempt { connection, kind, until: Instant::now() + limit.unwrap_or(GIVE_UP_AFTER) };
        if kind == Kind::Transaction {
            let begun = begin(&mut attempt.connection, limit.unwrap_or(BACKGROUND_LIMIT));
            if let Err(error) = TimeLimit(Some(attempt.until)).keep(begun).await {
                return Err(attempt.fail(database, error).await);
            }
        }
        Ok(attempt)
    }

    pub(crate) fn connection(&mut self) -> &mut AsyncPgConnection {
        &mut self.connection
    }

    pub(crate) fn time_limit(&self) -> TimeLimit {
        // What commits by itself may have done so, and is waited for.
        TimeLimit((self.kind == Kind::Transaction).then_some(self.until))
    }

    /// Ends it: what has been worked out is committed, or nothing is.
    pub(crate) async fn finish<T>(mut self, database: &Database, worked: Result<T, Error>) -> Result<T, Error> {
        let value = match worked {
            Ok(value) => value,
            Err(error) if self.kind == Kind::Statement => return Err(self.fail(database, error.of_commit()).await),
            Err(error) => return Err(self.fail(database, error).await),
        };
        if self.kind == Kind::Statement {
            self.give_back();
            return Ok(value);
        }
        match timeout(GIVE_UP_AFTER, commit(&mut self.connection)).await {
            Ok(Ok(())) => Ok(value),
            Ok(Err(error)) => Err(self.fail(database, error.of_commit()).await),
            Err(_) => Err(Error::OutcomeUnknown("a commit was not answered".into())),
        }
    }

    /// Gives the connection back, or closes it if it is not worth its memory.
    fn give_back(self) {
        if self.connection.is_oversized() {
            drop(PooledConnection::take(self.connection));
        }
    }

    /// Leaves the connection as it was, or closes it: on one whose time was up a statement may still
    /// be under way.
    async fn fail(mut self, database: &Database, error: Error) -> Error {
        let is_spent = match &error {
            Error::OutcomeUnknown(_) => true,
            Error::Unavailable(outage) => {
                matches!(outage.kind, OutageKind::Lost | OutageKind::ReadOnly | OutageKind::TimeUp)
            }
            _ => false,
        };
        if is_spent {
            drop(PooledConnection::take(self.connection));
        } else if self.kind == Kind::Transaction {
            // If this fails, too, the first error is the one that matters.
            let _ = timeout(STATEMENT_LIMIT, roll_back(&mut self.connection)).await;
        }
        database.note_failure(&error);
        error
    }
}

/// Until when the statements before a commit must be over.
pub(crate) struct TimeLimit(Option<Instant>);

impl TimeLimit {
    pub(crate) async fn keep<T>(self, working: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match self.0 {
            Some(until) => timeout_at(until, working).await.unwrap_or_else(|_| Err(not_in_time())),
            None => working.await,
        }
    }
}

fn not_in_time() -> Error {
    Error::outage(OutageKind::TimeUp, "the transaction was not over in time, and is not committed")
}

/// Runs a transaction, again if it fell victim to another: `transaction!(engine, |conn| …)`.
macro_rules! transaction {
    ($engine:expr, |$conn:ident| $work:expr) => {
        crate::engine::transaction::attempts!($engine, Transaction, |$conn| $work)
    };
}
pub(crate) use transaction;

/// Runs one statement that is a transaction of its own: `statement!(engine, |conn| …)`.
macro_rules! statement {
    ($engine:expr, |$conn:ident| $work:expr) => {
        crate::engine::transaction::attempts!($engine, Statement, |$conn| $work)
    };
}
pub(crate) use statement;

macro_rules! attempts {
    ($engine:expr, $kind:ident, |$conn:ident| $work:expr) => {{
        let mut tries = 0;
        loop {
            let kind = crate::engine::transaction::Kind::$kind;
            let mut attempt = crate::engine::transaction::Attempt::begin($engine.database(), kind).await?;
            let time_limit = attempt.time_limit();
            let working = async {
                let $conn: &mut diesel_async::AsyncPgConnection = attempt.connection();
                let worked: Result<_, crate::error::Error> = $work;
                worked
            };
            let worked = time_limit.keep(working).await;
            match attempt.finish($engine.database(), worked).await {
                Err(error) if error.is_conflict() && tries < crate::engine::CONFLICT_RETRIES => tries += 1,
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
