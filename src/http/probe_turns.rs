//! Requests for the state of the server use the database one after another.
//!
//! `/ready` needs no key, and with `--open-metrics` neither does `/metrics`. If each request took a connection of the
//! pool, anybody could leave none for the work.

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::error::Error;

/// The number of requests of each kind that use the database at once.
const PROBES_AT_ONCE: usize = 1;

/// The turns of a server. Each kind has its own, so that slow gauges do not make a server look unready.
pub(crate) struct ProbeTurns {
    pub readiness: Turns,
    pub gauges: Turns,
    pub doctor: Turns,
}

impl Default for ProbeTurns {
    fn default() -> Self {
        let turns = || Turns(Semaphore::new(PROBES_AT_ONCE));
        ProbeTurns { readiness: turns(), gauges: turns(), doctor: turns() }
    }
}

/// The turns of one kind of request, in the order of arrival.
pub(crate) struct Turns(Semaphore);

impl Turns {
    /// Waits for a turn, which ends when the permit is dropped. Returns an error if there is none by `deadline`.
    pub(crate) async fn take_by(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, Error> {
        match timeout_at(deadline, self.0.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(Error::unavailable("earlier checks of the database have not ended".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_request_of_a_kind_has_its_turn_and_the_others_are_refused_at_their_deadline() {
        let turns = ProbeTurns::default();
        let turn = turns.gauges.take_by(Instant::now()).await.unwrap();
        assert!(turns.gauges.take_by(Instant::now()).await.is_err());
        assert!(turns.readiness.take_by(Instant::now()).await.is_ok());
        drop(turn);
        assert!(turns.gauges.take_by(Instant::now()).await.is_ok());
    }
}
