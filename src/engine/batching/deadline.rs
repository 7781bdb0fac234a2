//! The time of calls: by when each must have been sent to the database, and by when its caller is
//! answered, whatever has happened.
//!
//! The rule is that a caller is never told that nothing was done if something may have been. So a
//! call is in one of three states ([`CallDeadline`]). While it is *queued* its caller may give it up,
//! and it is never sent. Once it is *sent*, which is noted just before its first statement, its
//! caller waits for the outcome, and if that does not come in time it is told that it is unknown.
//!
//! What is left of the time is also what statements may take, so that an outcome is unknown only
//! when the database stands still or cannot be reached. See `docs/decisions/0016`.
//!
//! Work for callers runs in a task that knows its time ([`Work`]); what runs by itself, in the
//! background, has none.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, OutageKind};
use crate::store::connection::database::{Database, PATIENCE, PooledConnection, STATEMENT_LIMIT};

use crate::engine::RESPOND_WITHIN;

/// What is kept back of a caller's time: for the answer's way from the database to the caller.
const MARGIN: Duration = Duration::from_millis(200);

// A call that is sent at once needs no limit of its own.
const _: () = assert!(STATEMENT_LIMIT.as_millis() + MARGIN.as_millis() < RESPOND_WITHIN.as_millis());

/// A statement that would have less time than this is not begun.
const LEAST_LIMIT: Duration = Duration::from_millis(50);

const QUEUED: u8 = 0;
const SENT: u8 = 1;
const CANCELLED: u8 = 2;

/// One call: how much time it has, and whether it has been sent to the database.
#[derive(Debug)]
pub struct CallDeadline {
    arrived: Instant,
    state: AtomicU8,
}

impl CallDeadline {
    /// A call arrives.
    pub fn start() -> Arc<Self> {
        Self::arrived_at(Instant::now())
    }

    /// A call has arrived.
    pub fn arrived_at(arrived: Instant) -> Arc<Self> {
        Arc::new(CallDeadline { arrived, state: AtomicU8::new(QUEUED) })
    }

    #[cfg(test)]
    pub(crate) fn arrived_before(now: Duration) -> Arc<Self> {
        Self::arrived_at(Instant::now() - now)
    }

    /// When it arrived.
    pub fn arrived(&self) -> Instant {
        self.arrived
    }

    /// If it has not been sent by then, it never is.
    pub fn send_by(&self) -> Instant {
        self.arrived + PATIENCE
    }

    /// By then its caller is answered.
    pub fn respond_by(&self) -> Instant {
        self.arrived + RESPOND_WITHIN
    }

    /// How long its statements may take from now on.
    pub fn left(&self) -> Duration {
        limit_before(self.respond_by())
    }

    /// Whether it may be sent.
    pub fn is_wanted(&self) -> bool {
        self.state.load(Ordering::Acquire) != CANCELLED && self.left() >= LEAST_LIMIT
    }

    /// Notes that it is being sent; false if it must not be: its caller has given it up, or its
    /// time is over.
    pub fn send(&self) -> bool {
        if !self.is_wanted() {
            return false;
        }
        let sent = self.state.compare_exchange(QUEUED, SENT, Ordering::AcqRel, Ordering::Acquire);
        matches!(sent, Ok(_) | Err(SENT))
    }

    /// Gives it up; false if it has been sent.
    pub fn cancel(&self) -> bool {
        self.state.compare_exchange(QUEUED, CANCELLED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// What its caller is told when its work ended without an answer: nothing was done if it was
    /// not sent, and otherwise nobody knows.
    pub fn without_answer(&self, if_not_sent: Error, why: &str) -> Error {
        if self.cancel() { if_not_sent } else { Error::OutcomeUnknown(why.to_owned()) }
    }
}

/// A call and its time.
#[derive(Debug, Clone)]
pub struct WithDeadline<C> {
    /// What is asked for.
    pub call: C,
    /// Its time.
    pub time: Arc<CallDeadline>,
}

/// The answer to a call that was not sent because its time was over.
pub fn too_late() -> Error {
    Error::outage(OutageKind::TimeUp, "its time was over before it could be sent")
}

fn limit_before(respond_by: Instant) -> Duration {
    respond_by.saturating_duration_since(Instant::now()).saturating_sub(MARGIN)
}

/// What a task works on: for whom, and until when.
#[derive(Default)]
pub struct Work {
    /// A call that is sent with the first statement, whatever that is.
    call: Option<Arc<CallDeadline>>,
    respond_by: Mutex<Option<Instant>>,
    connection: Mutex<Option<PooledConnection>>,
}

tokio::task_local! {
    static WORK: Work;
}

impl Work {
    /// One call, in a task of its own.
    pub fn on_call(call: Arc<CallDeadline>) -> Self {
        let respond_by = Mutex::new(Some(call.respond_by()));
        Work { call: Some(call), respond_by, ..Work::default() }
    }

    /// A batch of calls, which are sent by those who know what their first statement is
    /// ([`send_all`]). It runs on this connection first.
    pub fn on_batch(connection: PooledConnection) -> Self {
        Work { connection: Mutex::new(Some(connection)), ..Work::default() }
    }

    /// Runs what is to be done.
    pub async fn run<F: Future>(self, doing: F) -> F::Output {
        WORK.scope(self, doing).await
    }
}

/// Notes that calls of a batch are being sent, all of them or none; false if one must not be. From
/// now on statements may take what is left to the first of them.
pub fn send_all<C>(calls: &[&WithDeadline<C>]) -> bool {
    let are_wanted = calls.iter().all(|timed| timed.time.is_wanted());
    // One may be given up between the two, and some of the others be taken for sent. They are, soon.
    are_wanted && send_wanted(calls.iter().copied()).len() == calls.len()
}

/// Notes that those calls of a batch are being sent that may be, and returns them. From now on
/// statements may take what is left to the first of them.
pub fn send_wanted<'a, C>(calls: impl IntoIterator<Item = &'a WithDeadline<C>>) -> Vec<&'a WithDeadline<C>> {
    let sent: Vec<&WithDeadline<C>> = calls.into_iter().filter(|timed| timed.time.send()).collect();
    limit_statements(&sent);
    sent
}

/// From now on statements may take what is left to the first of these calls.
pub fn limit_statements<C>(calls: &[&WithDeadline<C>]) {
    let first = calls.iter().map(|timed| timed.time.respond_by()).min();
    // Outside of a batch, in tests, nothing is limited.
    let _ = WORK.try_with(|work| *lock(&work.respond_by) = first);
}

/// An answer for each call of a batch. `sent` are some of them, in the same order; the others were
/// not sent, since their time was over.
pub fn answer_each<C, A>(
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

/// How long a statement may take that is begun now; `None` if nobody waits for it.
pub fn statement_limit() -> Option<Duration> {
    let respond_by = WORK.try_with(|work| *lock(&work.respond_by)).ok().flatten();
    respond_by.map(limit_before)
}

/// A connection to write with: that which the batch was put together for, or one from the pool.
/// Whoever's call this task works on is asked whether it is still wanted, after the wait.
pub async fn connection_to_write(database: &Database) -> Result<PooledConnection, Error> {
    let limit = statement_limit();
    if limit.is_some_and(|limit| limit < LEAST_LIMIT) {
        return Err(too_late());
    }
    let handed_on = WORK.try_with(|work| lock(&work.connection).take()).ok().flatten();
    let connection = match handed_on.filter(|connection| connection.is_open()) {
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

    fn timed(ago: Duration) -> WithDeadline<()> {
        WithDeadline { call: (), time: CallDeadline::arrived_before(ago) }
    }

    #[test]
    fn a_call_that_was_given_up_is_never_sent() {
        let time = CallDeadline::start();
        assert!(time.cancel());
        assert!(!time.send());
    }

    #[test]
    fn a_call_that_was_sent_is_not_given_up_any_more() {
        let time = CallDeadline::start();
        assert!(time.send() && time.send(), "it may be sent again, after a conflict");
        assert!(!time.cancel());
    }

    #[test]
    fn what_ends_without_an_answer_was_not_done_if_it_was_not_sent_and_is_unknown_otherwise() {
        let (queued, sent) = (CallDeadline::start(), CallDeadline::start());
        sent.send();
        assert!(matches!(queued.without_answer(Error::Overloaded, ""), Error::Overloaded));
        assert!(!queued.send(), "nor is it afterwards");
        assert!(matches!(sent.without_answer(Error::Overloaded, ""), Error::OutcomeUnknown(_)));
    }

    #[test]
    fn a_call_whose_time_is_over_is_not_sent() {
        assert!(CallDeadline::arrived_before(PATIENCE).send());
        assert!(!CallDeadline::arrived_before(RESPOND_WITHIN - MARGIN).send());
    }

    #[tokio::test]
    async fn statements_of_a_batch_have_what_is_left_to_its_first_call() {
        let (old, young) = (timed(Duration::from_secs(1)), timed(Duration::ZERO));
        let work = Work::default().run(async {
            assert_eq!(statement_limit(), None);
            assert!(send_all(&[&young, &old]));
            let most = RESPOND_WITHIN - MARGIN - Duration::from_secs(1);
            assert!(statement_limit().is_some_and(|limit| limit <= most && limit > most / 2));
        });
        work.await;
        assert_eq!(statement_limit(), None, "outside of it nobody waits");
    }

    #[test]
    fn none_is_sent_if_one_was_given_up() {
        let calls = [timed(Duration::ZERO), timed(Duration::ZERO)];
        calls[1].time.cancel();
        assert!(!send_all(&[&calls[0], &calls[1]]));
        assert!(calls[0].time.cancel(), "it was not sent either");
    }

    #[test]
    fn those_that_were_not_sent_are_told_so_and_the_others_get_their_own_answers() {
        let calls = [1, 2, 3].map(|call| WithDeadline { call, time: CallDeadline::start() });
        calls[1].time.cancel();
        let sent = send_wanted(&calls);
        let answers = answer_each(&calls, &sent, |call| Ok(call * 10));
        assert!(matches!(answers[..], [Ok(10), Err(Error::Unavailable(_)), Ok(30)]));
    }
}
