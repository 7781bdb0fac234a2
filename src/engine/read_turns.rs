//! Turns of reads: the lists and pages of callers take only a part of the connections.
//!
//! The pool serves whoever comes first. Without turns, the slow lists of one namespace would take all connections, and
//! every publish, claim and settlement of every other namespace would wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::domain::ids::NamespaceId;
use crate::engine::turns::{NamespaceTurns, Turn};
use crate::error::{Error, OutageKind};
use crate::store::connection::database::STATEMENT_LIMIT;

/// The connections that are left for what is neither a batch nor a read: writes outside of batches, keys and the
/// background services.
const SPARE_CONNECTIONS: usize = 2;

/// The least part of the pool that reads get, if it is small for its batches: one in so many connections.
const LEAST_PART: usize = 4;

/// The part of the turns that one namespace gets: one in so many.
const NAMESPACE_PART: usize = 2;

/// The time that a read waits for its turn before it is refused.
const TURN_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct ReadTurns {
    shares: NamespaceTurns,
    /// The number of reads that the database has answered. While it grows, the database works.
    answered: Arc<AtomicU64>,
}

/// The turn of a read, which ends when it is dropped. It must not be dropped while a statement of the read may run: a
/// caller may be gone by then, but the database is still at work for it.
#[derive(Debug)]
pub(crate) struct ReadTurn {
    _turn: Turn,
    answered: Arc<AtomicU64>,
}

impl ReadTurn {
    /// Ends the turn of a read that the database has answered.
    pub(crate) fn note_answer(self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the turn of a read that was given up, when the database has ended its last statement.
    pub(crate) async fn outlast_statement(self) {
        sleep(STATEMENT_LIMIT).await;
    }
}

impl ReadTurns {
    /// Returns the turns of a server with `connections` connections, of which batches use `batches_at_once`.
    pub(crate) fn new(connections: usize, batches_at_once: usize) -> Self {
        let left = connections.saturating_sub(batches_at_once + SPARE_CONNECTIONS);
        let at_once = left.max(connections / LEAST_PART).max(1);
        let of_namespace = (at_once / NAMESPACE_PART).max(1);
        ReadTurns { shares: NamespaceTurns::new(at_once, of_namespace), answered: Arc::default() }
    }

    /// Waits for a turn. Fails with [`Error::Overloaded`] after [`TURN_WITHIN`], or as unavailable if no read of any
    /// namespace was answered meanwhile: then it is the database that does not answer.
    pub(crate) async fn turn(&self, namespace: NamespaceId) -> Result<ReadTurn, Error> {
        self.turn_within(namespace, TURN_WITHIN).await
    }

    async fn turn_within(&self, namespace: NamespaceId, within: Duration) -> Result<ReadTurn, Error> {
        let answered = self.answered.load(Ordering::Relaxed);
        match timeout(within, self.shares.turn(namespace)).await {
            Ok(turn) => Ok(ReadTurn { _turn: turn?, answered: self.answered.clone() }),
            Err(_) if self.answered.load(Ordering::Relaxed) == answered => {
                Err(Error::outage(OutageKind::TooSlow, "no read was answered in time"))
            }
            Err(_) => Err(Error::Overloaded),
        }
    }

    /// Waits for the turn of a stream, which has no caller who waits for a response.
    pub(crate) async fn turn_of_stream(&self, namespace: NamespaceId) -> Result<Turn, Error> {
        self.shares.turn(namespace).await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const LOUD: NamespaceId = NamespaceId(1);
    const QUIET: NamespaceId = NamespaceId(2);

    /// Returns how many reads of one namespace, and of two, may run at once.
    fn at_once(connections: usize, batches: usize) -> (usize, usize) {
        let turns = ReadTurns::new(connections, batches);
        let take = |namespace| std::iter::from_fn(|| turns.turn(namespace).now_or_never()?.ok()).collect::<Vec<_>>();
        let loud = take(LOUD);
        let quiet = take(QUIET);
        (loud.len(), loud.len() + quiet.len())
    }

    #[tokio::test]
    async fn reads_leave_connections_for_batches_and_for_other_namespaces() {
        assert_eq!(at_once(8, 2), (2, 4));
        assert_eq!(at_once(32, 4), (13, 26));
        assert_eq!(at_once(8, 16), (1, 2), "more batches than connections");
        assert_eq!(at_once(1, 1), (1, 1));
    }

    #[tokio::test]
    async fn a_read_that_waits_too_long_is_refused() {
        let turns = ReadTurns::new(8, 2);
        let held = [turns.turn(LOUD).await.unwrap(), turns.turn(LOUD).await.unwrap()];
        let soon = Duration::from_millis(1);
        let refused = turns.turn_within(LOUD, soon).await.unwrap_err();
        assert!(refused.is_outage(OutageKind::TooSlow), "{refused}");
        let mut waiting = std::pin::pin!(turns.turn_within(LOUD, soon));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        turns.turn(QUIET).await.unwrap().note_answer();
        assert!(matches!(waiting.await, Err(Error::Overloaded)), "reads of others are answered");
        drop(held);
        assert!(turns.turn(LOUD).await.is_ok());
    }
}
