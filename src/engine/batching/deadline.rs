//! Deadlines of calls: when a call must be sent to the database, and when its caller must get a result.
//!
//! A caller must never get an error that means "nothing was done" if something may have been done.
//! Therefore a call is in one of three states ([`CallDeadline`]). While it is *queued*, its caller may
//! cancel it. A *cancelled* call is never sent. A call becomes *sent* just before its first statement.
//! From then on its caller waits for the outcome, and gets [`Error::OutcomeUnknown`] if that does not come
//! in time.
//!
//! The time that a call has left also limits its statements. Therefore an outcome is unknown only if the
//! database hangs or cannot be reached. See `docs/decisions/0016`.
//!
//! Work for callers runs in a task that knows its deadline ([`Work`]). Background work has no deadline.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, OutageKind};
use crate::store::connection::database::{Database, PATIENCE, PooledConnection, STATEMENT_LIMIT};

use crate::engine::RESPOND_WITHIN;

/// The part of a caller's time that is reserved for the way of the result from the database to the caller.
const MARGIN: Duration = Duration::from_millis(200);

// A call that is sent at once needs no limit besides the `statement_timeout` of the connection.
const _: () = assert!(STATEMENT_LIMIT.as_millis() + MARGIN.as_millis() < RESPOND_WITHIN.as_millis());

/// A statement that would have less time than this is not started.
const LEAST_LIMIT: Duration = Duration::from_millis(50);

const QUEUED: u8 = 0;
const SENT: u8 = 1;
const CANCELLED: u8 = 2;

/// The deadline of one call, and whether the call has been sent to the database.
#[derive(Debug)]
pub(crate) struct CallDeadline {
    arrived: Instant,
    state: AtomicU8,
}

impl CallDeadline {
    /// Starts the time of a call that arrives now.
    pub(crate) fn start() -> Arc<Self> {
        Self::arrived_at(Instant::now())
    }

    /// Starts the time of a call that arrived at `arrived`.
    pub(crate) fn arrived_at(arrived: Instant) -> Arc<Self> {
        Arc::new(CallDeadline { arrived, state: AtomicU8::new(QUEUED) })
    }

    #[cfg(test)]
    pub(crate) fn arrived_before(age: Duration) -> Arc<Self> {
        Self::arrived_at(Instant::now() - age)
    }

    pub(crate) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// Returns the time at which the caller cancels the call if it has not been sent.
    pub(crate) fn send_by(&self) -> Instant {
        self.arrived + PATIENCE
    }

    /// Returns the time by which the caller gets a result.
    pub(crate) fn respond_by(&self) -> Instant {
        self.arrived + RESPOND_WITHIN
    }

    /// Returns the time that the statements of the call may take from now on.
    pub(crate) fn left(&self) -> Duration {
        limit_before(self.respond_by())
    }

    /// Returns whether the call may be sent: it is not cancelled, and has enough time left.
    pub(crate) fn is_wanted(&self) -> bool {
        self.state.load(Ordering::Acquire) != CANCELLED && self.left() >= LEAST_LIMIT
    }

    /// Marks the call as sent. Returns false if it must not be sent, because it is cancelled or its time is
    /// over. A sent call may be sent again.
    pub(crate) fn send(&self) -> bool {
        if !self.is_wanted() {
            return false;
        }
        let sent = self.state.compare_exchange(QUEUED, SENT, Ordering::AcqRel, Ordering::Acquire);
        matches!(sent, Ok(_) | Err(SENT))
    }

    /// Cancels the call. Returns false if it has already been sent or cancelled.
    pub(crate) fn cancel(&self) -> bool {
        self.state.compare_exchange(QUEUED, CANCELLED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns the error of a call whose work ended without a result. If the call was not sent, this is
    /// `if_not_sent`, and it never will be sent. Otherwise the outcome is unknown.
    pub(crate) fn without_answer(&self, if_not_sent: Error, why: &str) -> Error {
        if self.cancel() { if_not_sent } else { Error::OutcomeUnknown(why.to_owned()) }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct WithDeadline<C> {
    pub call: C,
    pub time: Arc<CallDeadline>,
}

/// Returns the error of a call that was not sent because its time was over.
pub(crate) fn too_late() -> Error {
    Error::outage(OutageKind::TimeUp, "its time was over before it could be sent")
}

/// Returns the time that statements may take for a result by `respond_by`.
fn limit_before(respond_by: Instant) -> Duration {
    respond_by.saturating_duration_since(Instant::now()).saturating_sub(MARGIN)
}

/// The callers and the deadline of a task. Statements read it from the task-local `WORK`.
#[derive(Default)]
pub(crate) struct Work {
    /// The call to mark as sent before the first write.
    call: Option<Arc<CallDeadline>>,
    respond_by: Mutex<Option<Instant>>,
    connection: Mutex<Option<PooledConnection>>,
}

tokio::task_local! {
    static WORK: Work;
}

impl Work {
    /// Returns the work of a task that serves a single call.
    pub(crate) fn on_call(call: Arc<CallDeadline>) -> Self {
        let respond_by = Mutex::new(Some(call.respond_by()));
        Work { call: Some(call), respond_by, ..Work::default() }
    }

    /// Returns the work of a batch. The code that runs the batch marks its calls as sent ([`send_all`],
    /// [`send_wanted`]), since it knows their first statement. The first transaction uses `connection`.
    pub(crate) fn on_batch(connection: PooledConnection) -> Self {
        Work { connection: Mutex::new(Some(connection)), ..Work::default() }
    }

    /// Runs a future as this work.
    pub(crate) async fn run<F: Future>(self, future: F) -> F::Output {
        WORK.scope(self, future).await
    }
}

/// Marks all calls of a batch as sent, or none. Returns false if one of them must not be sent. From now on
/// statements are limited to the time that the call with the earliest deadline has left.
pub(crate) fn send_all<C>(calls: &[&WithDeadline<C>]) -> bool {
    let are_wanted = calls.iter().all(|timed| timed.time.is_wanted());
    // A call may be cancelled between the check and the sending. Then this returns false although other
    // calls are marked as sent. That is harmless, because they are sent soon after.
    are_wanted && send_wanted(calls.iter().copied()).len() == calls.len()
}

/// Marks those calls of a batch as sent that may be sent, and returns them. From now on statements are
/// limited to the time that the call with the earliest deadline has left.
pub(crate) fn send_wanted<'a, C>(calls: impl IntoIterator<Item = &'a WithDeadline<C>>) -> Vec<&'a WithDeadline<C>> {
    let sent: Vec<&WithDeadline<C>> = calls.into_iter().filter(|timed| timed.time.send()).collect();
    limit_statements(&sent);
    sent
}

/// Limits statements from now on to the time that the call with the earliest deadline has left.
pub(crate) fn limit_statements<C>(calls: &[&WithDeadline<C>]) {
    let earliest = calls.iter().map(|timed| timed.time.respond_by()).min();
    // Tests call this outside of a task with `WORK`. There nothing is limited.
    let _ = WORK.try_with(|work| *lock(&work.respond_by) = earliest);
}

/// Returns a result for each call of a batch. `sent` is the subset of `calls` that was sent, in the same
/// order. The other calls get the error [`too_late`].
pub(crate) fn answer_each<C, A>(
    calls: &[WithDeadline<C>],
    sent: &[&WithDeadline<C>],
    mut answer: impl FnMut(&C) -> Result<A, Error>,
) -> Vec<Result<A, Error>> {
    let mut sent = sent.iter().peekable();
    let answer = |timed: &WithDeadline<C>| match sent.next_if(|next| Arc::ptr_eq(&next.time, &timed.time)) {
        Some(timed) => answer(&timed.call),
        None => Err(too_late()),
    };
    calls.iter().map(answer).collect()
}

/// Returns the time that a statement may take from now on, or `None` if no caller waits for it.
pub(crate) fn statement_limit() -> Option<Duration> {
    let respond_by = WORK.try_with(|work| *lock(&work.respond_by)).ok().flatten();
    respond_by.map(limit_before)
}

/// Returns a connection to write with: the one that the batch was formed for, or one from the pool. If the
/// task serves a single call, marks it as sent. This happens after the wait for the connection, since the
/// caller may cancel the call during that wait.
pub(crate) async fn connection_to_write(database: &Database) -> Result<PooledConnection, Error> {
    let limit = statement_limit();
    if limit.is_some_and(|limit| limit < LEAST_LIMIT) {
        return Err(too_late());
    }
    let batch_connection = WORK.try_with(|work| lock(&work.connection).take()).ok().flatten();
    let connection = match batch_connection.filter(|connection| connection.is_open()) {
        Some(connection) => connection,
        None => database.connection_by(Instant::now() + limit.unwrap_or(PATIENCE).min(PATIENCE)).await?,
    };
    let is_wanted = WORK.try_with(|work| work.call.as_ref().is_none_or(|call| call.send()));
    if is_wanted.unwrap_or(true) { Ok(connection) } else { Err(too_late()) }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(age: Duration) -> WithDeadline<()> {
        WithDeadline { call: (), time: CallDeadline::arrived_before(age) }
    }

    #[test]
    fn a_cancelled_call_is_never_sent() {
        let time = CallDeadline::start();
        assert!(time.cancel());
        assert!(!time.send());
    }

    #[test]
    fn a_sent_call_cannot_be_cancelled() {
        let time = CallDeadline::start();
        assert!(time.send() && time.send(), "a call may be sent again after a conflict");
        assert!(!time.cancel());
    }

    #[test]
    fn without_a_result_the_outcome_is_unknown_only_if_the_call_was_sent() {
        let (queued, sent) = (CallDeadline::start(), CallDeadline::start());
        sent.send();
        assert!(matches!(queued.without_answer(Error::Overloaded, ""), Error::Overloaded));
        assert!(!queued.send(), "it is not sent afterwards either");
        assert!(matches!(sent.without_answer(Error::Overloaded, ""), Error::OutcomeUnknown(_)));
    }

    #[test]
    fn a_call_whose_time_is_over_is_not_sent() {
        assert!(CallDeadline::arrived_before(PATIENCE).send());
        assert!(!CallDeadline::arrived_before(RESPOND_WITHIN - MARGIN).send());
    }

    #[tokio::test]
    async fn the_earliest_deadline_of_a_batch_limits_its_statements() {
        let (old, young) = (timed(Duration::from_secs(1)), timed(Duration::ZERO));
        let work = Work::default().run(async {
            assert_eq!(statement_limit(), None);
            assert!(send_all(&[&young, &old]));
            let max = RESPOND_WITHIN - MARGIN - Duration::from_secs(1);
            assert!(statement_limit().is_some_and(|limit| limit <= max && limit > max / 2));
        });
        work.await;
        assert_eq!(statement_limit(), None, "no caller waits outside of the work");
    }

    #[test]
    fn no_call_is_sent_if_one_is_cancelled() {
        let calls = [timed(Duration::ZERO), timed(Duration::ZERO)];
        calls[1].time.cancel();
        assert!(!send_all(&[&calls[0], &calls[1]]));
        assert!(calls[0].time.cancel(), "the other call was not sent");
    }

    #[test]
    fn sent_calls_get_their_results_and_the_others_an_error() {
        let calls = [1, 2, 3].map(|call| WithDeadline { call, time: CallDeadline::start() });
        calls[1].time.cancel();
        let sent = send_wanted(&calls);
        let answers = answer_each(&calls, &sent, |call| Ok(call * 10));
        assert!(matches!(answers[..], [Ok(10), Err(Error::Unavailable(_)), Ok(30)]));
    }
}
