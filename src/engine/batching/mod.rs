//! Batching: concurrent calls of one verb become one statement.
//!
//! A [`Batcher`] is the queue in front of a verb. While one batch runs, the next one gathers, and it
//! starts when the first has ended. There is no timer: a lone call starts at once, and under load batches
//! grow until the database is the only bottleneck. Callers get their results after the commit.
//!
//! Most of the cost of a small statement is fixed, so fewer and larger statements are faster even if the
//! database could run several at once. Therefore a batcher starts a second batch beside the first only
//! when at least as many calls have gathered as are in flight, and batchers share a [`BatchLimiter`], which
//! admits a few batches at a time. A batch can be slow (it is large, or waits for a row lock) and must not
//! delay all others: a batch that has waited longer than its `patience` runs without a permit.
//!
//! Waking a thread costs more than anything else that a call does here. Therefore calls that gather wake
//! nobody until a batch is due ([`queue`] explains who wakes whom, and why no wake-up gets lost), and the
//! answers of a batch wake each thread that serves HTTP once ([`mailbox`]).
//!
//! Failures, and what handles them:
//! - *A bad row of one caller fails the other calls*: calls are validated before they are queued, and a
//!   batch that the database refuses is split until the bad call is alone ([`splitting`]).
//! - *A caller disconnects, or its time is over*: its call is dropped before it runs. A batch is formed
//!   only when it has a connection ([`ConnectionSource`]), and its calls are marked as sent just before
//!   the first statement ([`deadline`]).
//! - *Too many calls wait*: the queue is bounded, and further calls are refused at once. A call with too
//!   little time left for a batch is refused, too.
//! - *A panic or a lost connection*: every caller of the batch gets an error.
//! - *A caller disconnects while its answer is on the way*: the answer is dropped, which undoes claims.
//! - *The thread of a caller ends*: its mailbox closes, and drops or passes on what it holds.
//! - *The database hangs*: a batch that has not ended after `GIVE_UP_AFTER` is abandoned.
//! - *One namespace starves another*: each gets a fair share of every batch, and of the room to wait in
//!   ([`lanes`]). While one is dominant, the calls of quiet ones do not even wait for its batches ([`queue`]).
//! - *One verb starves another*: each verb has its own batcher, and permits are granted in order.

pub(crate) mod batchers;
pub(crate) mod deadline;
mod dominance;
mod lanes;
mod limiter;
mod load;
mod mailbox;
mod queue;
mod splitting;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, ready};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::domain::ids::NamespaceId;
use crate::error::Error;

use crate::engine::batching::deadline::{CallDeadline, WithDeadline, too_late};
use crate::engine::batching::lanes::Service;
use crate::engine::batching::limiter::BatchPermit;
pub(crate) use crate::engine::batching::limiter::{BatchLimiter, ConnectionSource};
use crate::engine::batching::load::EXPRESS_WEIGHT;
use crate::engine::batching::mailbox::Mailbox;
pub(crate) use crate::engine::batching::mailbox::open_mailbox;
use crate::engine::batching::queue::{CallQueue, ServingSide, StartedBatch};
pub(crate) use crate::engine::batching::splitting::{split, split_conflicts};
use crate::engine::stopping;
use crate::engine::transaction::GIVE_UP_AFTER;

/// The results of the calls of a batch, in the order of the calls.
pub(crate) type Answers<A> = Vec<Result<A, Error>>;
/// Runs the calls of a batch on a connection.
type Run<C, A, K> = dyn Fn(Vec<WithDeadline<C>>, K) -> Pin<Box<dyn Future<Output = Answers<A>> + Send>> + Send + Sync;

/// A call with this much time left is sent, even if the last batch took longer.
const ENOUGH_TIME: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy)]
pub(crate) struct BatcherSettings {
    /// The name in log lines.
    pub name: &'static str,
    /// The maximum number of calls that wait.
    pub capacity: usize,
    /// The maximum number of ordinary batches of this batcher that run at once.
    pub width: usize,
    /// Whether a small batch waits for the one that runs, so that it becomes larger, instead of running beside it.
    pub avoids_overlap: bool,
    /// Whether quiet namespaces have an express batch beside these while another one is dominant.
    pub has_express: bool,
    /// The time that a batch waits for its permit before it runs without one.
    pub patience: Duration,
    /// The maximum weight of a batch, in rows. A single call may exceed it.
    pub max_weight: usize,
}

/// The queue in front of one verb.
pub(crate) struct Batcher<C, A> {
    queue: Arc<CallQueue<C, A>>,
    history: Arc<BatchHistory>,
}

impl<C, A> Drop for Batcher<C, A> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The duration of the last batch of a batcher.
#[derive(Default)]
struct BatchHistory(Mutex<Option<LastBatch>>);

#[derive(Debug, Clone, Copy)]
struct LastBatch {
    ended_at: Instant,
    took: Duration,
    weight: usize,
}

impl BatchHistory {
    fn batch_ended(&self, weight: usize, started_at: Instant) {
        let ended_at = Instant::now();
        let last = LastBatch { ended_at, took: ended_at - started_at, weight };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }

    fn last(&self) -> Option<LastBatch> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time that a call must have left to be sent in a batch of this weight: 1.5 times the
    /// duration of the last batch, scaled down for a lighter batch. Without this rule an overloaded batcher
    /// would only send calls whose callers stop waiting before the batch ends.
    fn time_needed(&self, weight: usize) -> Duration {
        let Some(last) = self.last() else { return Duration::ZERO };
        let share = (weight as f64 / last.weight.max(1) as f64).min(1.0);
        last.took.mul_f64(1.5 * share).min(ENOUGH_TIME)
    }

    /// Returns the error of a call that was not sent in time. If a batch ended while the call waited, the
    /// database works, and the server is only overloaded.
    fn not_sent(&self, time: &CallDeadline) -> Error {
        let has_progress = self.last().is_some_and(|last| last.ended_at > time.arrived());
        if has_progress { Error::Overloaded } else { too_late() }
    }
}

struct QueuedCall<C, A> {
    namespace: NamespaceId,
    call: WithDeadline<C>,
    weight: usize,
    caller: Caller<A>,
}

/// The way of an answer to its caller.
struct Caller<A> {
    answer: oneshot::Sender<Result<A, Error>>,
    /// The mailbox of the thread that the caller runs on, if it has one.
    mailbox: Option<Arc<Mailbox>>,
}

/// Cancels a call when its caller disconnects.
struct CancelOnDrop(Arc<CallDeadline>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl<C: Send + Sync + 'static, A: Send + 'static> Batcher<C, A> {
    /// Opens a batcher and spawns its tasks. They end when the batcher is dropped.
    pub(crate) fn open<K, F, Fut>(
        runtime: &Handle,
        shape: BatcherSettings,
        limiter: Arc<BatchLimiter<K>>,
        run: F,
    ) -> Self
    where
        K: Send + 'static,
        F: Fn(Vec<WithDeadline<C>>, K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answers<A>> + Send + 'static,
    {
        let (queue, serving) = CallQueue::new(&shape, limiter.dominance.clone());
        let run: Arc<Run<C, A, K>> = Arc::new(move |calls, connection| run(calls, connection).boxed());
        let history = Arc::new(BatchHistory::default());
        let ordinary = std::iter::repeat_n(Service::Ordinary, shape.width);
        for service in ordinary.chain(shape.has_express.then_some(Service::Express)) {
            runtime.spawn(serve(shape, service, serving.clone(), history.clone(), limiter.clone(), run.clone()));
        }
        runtime.spawn(queue.clone().watch(shape.patience));
        Batcher { queue, history }
    }

    /// Returns the number of calls that wait for the next batch.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether calls are in flight or wait.
    pub(crate) fn is_busy(&self) -> bool {
        self.queue.is_busy()
    }

    /// Queues a call of a namespace. Returns a future of its result. `weight` is its weight in a batch, in rows.
    ///
    /// Not `async`: the future of a request that waits would hold the call as well, which is in the queue by then.
    pub(crate) fn call(
        &self,
        namespace: NamespaceId,
        call: C,
        weight: usize,
    ) -> impl Future<Output = Result<A, Error>> + use<'_, C, A> {
        self.call_since(namespace, call, weight, Instant::now())
    }

    /// Like [`Batcher::call`], for a caller that arrived earlier and has less time left.
    pub(crate) fn call_since(
        &self,
        namespace: NamespaceId,
        call: C,
        weight: usize,
        arrived: Instant,
    ) -> impl Future<Output = Result<A, Error>> + use<'_, C, A> {
        let (answer, answered) = oneshot::channel();
        let time = CallDeadline::arrived_at(arrived);
        let cancelling = CancelOnDrop(time.clone());
        let call = WithDeadline { call, time };
        let caller = Caller { answer, mailbox: Mailbox::of_this_thread() };
        match self.queue.push(QueuedCall { namespace, call, weight, caller }) {
            Ok(None) => {}
            Ok(Some(dropped)) => answer_all(vec![dropped.caller], vec![Err(Error::Overloaded)]),
            Err(error) => return Either::Left(ready(Err(error))),
        }
        Either::Right(self.answer_in_time(answered, cancelling))
    }

    /// Returns the answer to a call, or an error once its time is over.
    async fn answer_in_time(
        &self,
        mut answered: oneshot::Receiver<Result<A, Error>>,
        cancelling: CancelOnDrop,
    ) -> Result<A, Error> {
        let time = &cancelling.0;
        let without_answer = |_| Err(time.without_answer(stopping(), "the batch ended without an answer"));
        if let Ok(answer) = timeout_at(time.send_by(), &mut answered).await {
            return answer.unwrap_or_else(without_answer);
        }
        if time.cancel() {
            return Err(self.history.not_sent(time));
        }
        match timeout_at(time.respond_by(), answered).await {
            Ok(answer) => answer.unwrap_or_else(without_answer),
            Err(_) => Err(Error::OutcomeUnknown("no answer from the database in time".into())),
        }
    }
}

/// Takes batches from the queue and runs them, until the batcher is closed. Express batches need no permit: they are
/// small, and would wait for the batches that they are meant to pass.
async fn serve<C: Send + Sync + 'static, A: Send + 'static, K: Send + 'static>(
    shape: BatcherSettings,
    service: Service,
    queue: Arc<ServingSide<C, A>>,
    history: Arc<BatchHistory>,
    limiter: Arc<BatchLimiter<K>>,
    run: Arc<Run<C, A, K>>,
) {
    let mut ended = StartedBatch::default();
    while let Some(mut turn) = queue.next_turn(service, std::mem::take(&mut ended)).await {
        let (permit, max_weight) = match service {
            Service::Ordinary => {
                let has_calls_of = |namespace| queue.has_calls_of(namespace);
                (limiter.permit(turn.gathering_since, shape.patience, has_calls_of).await, shape.max_weight)
            }
            Service::Express => (BatchPermit::default(), EXPRESS_WEIGHT),
        };
        let connect = (limiter.connect)().await;
        let batch = turn.take_batch(max_weight);
        let connection = match connect {
            Ok(connection) => connection,
            Err(error) => {
                let (_, callers) = take_in_time(batch, Duration::ZERO);
                let errors = callers.iter().map(|_| Err(error.for_another())).collect();
                answer_all(callers, errors);
                continue;
            }
        };
        let weight = batch.iter().map(|waiting| waiting.weight).sum();
        let (calls, callers) = take_in_time(batch, history.time_needed(weight));
        if calls.is_empty() {
            continue;
        }
        let (size, started_at) = (calls.len(), Instant::now());
        let times: Vec<Arc<CallDeadline>> = calls.iter().map(|timed| timed.time.clone()).collect();
        let started = turn.start_batch(size);
        let answers = run_to_result(shape.name, &times, run(calls, connection)).await;
        permit.give_back(started_at.elapsed());
        // The time of an express batch says nothing about a batch of hundreds of rows.
        if service == Service::Ordinary {
            history.batch_ended(weight, started_at);
        }
        answer_all(callers, answers);
        ended = StartedBatch { took: Some(started_at.elapsed()), ..started };
    }
}

/// Returns the results of a batch. Each call gets an error if the batch panics or does not end.
async fn run_to_result<A>(
    batcher: &'static str,
    times: &[Arc<CallDeadline>],
    running: impl Future<Output = Answers<A>>,
) -> Answers<A> {
    let why = match tokio::time::timeout(GIVE_UP_AFTER, AssertUnwindSafe(running).catch_unwind()).await {
        Ok(Ok(answers)) => return answers,
        Ok(Err(_)) => "a batch panicked",
        Err(_) => "a batch did not end in time",
    };
    log::error!(batcher, callers = times.len(); "{why}");
    times.iter().map(|time| Err(time.without_answer(Error::Internal(why.into()), why))).collect()
}

/// Returns the calls of a batch that can be sent, and their callers. Calls with less time left than
/// `needed` are refused, and cancelled calls are dropped.
fn take_in_time<C, A: Send + 'static>(
    batch: Vec<QueuedCall<C, A>>,
    needed: Duration,
) -> (Vec<WithDeadline<C>>, Vec<Caller<A>>) {
    let mut in_time = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
    let mut refused = Vec::new();
    for QueuedCall { call, caller, .. } in batch {
        if call.time.left() < needed && call.time.cancel() {
            refused.push(caller);
        } else if call.time.is_wanted() {
            in_time.0.push(call);
            in_time.1.push(caller);
        }
    }
    let errors = refused.iter().map(|_| Err(Error::Overloaded)).collect();
    answer_all(refused, errors);
    in_time
}

/// An answer, and the channel to its caller.
type Answered<A> = (oneshot::Sender<Result<A, Error>>, Result<A, Error>);

/// The answers for the callers of one thread, or for all callers whose threads have no mailbox.
struct AnswerGroup<A> {
    mailbox: Option<Arc<Mailbox>>,
    answers: Vec<Answered<A>>,
}

impl<A> AnswerGroup<A> {
    fn is_for(&self, mailbox: Option<&Arc<Mailbox>>) -> bool {
        self.mailbox.as_ref().map(Arc::as_ptr) == mailbox.map(Arc::as_ptr)
    }
}

/// Answers the callers of a batch, with one wake-up per thread that has a mailbox.
fn answer_all<A: Send + 'static>(callers: Vec<Caller<A>>, answers: Answers<A>) {
    let mut groups: Vec<AnswerGroup<A>> = Vec::new();
    for (Caller { answer: channel, mailbox }, answer) in callers.into_iter().zip(answers) {
        // There are only as many groups as threads that serve HTTP, so a search is fast.
        match groups.iter_mut().find(|group| group.is_for(mailbox.as_ref())) {
            Some(group) => group.answers.push((channel, answer)),
            None => groups.push(AnswerGroup { mailbox, answers: vec![(channel, answer)] }),
        }
    }
    for AnswerGroup { mailbox, answers } in groups {
        // A single answer wakes its caller as cheaply as it would wake the mailbox.
        match mailbox.filter(|_| answers.len() > 1) {
            Some(mailbox) => mailbox.post(Box::new(|| deliver(answers))),
            None => deliver(answers),
        }
    }
}

fn deliver<A>(answers: Vec<Answered<A>>) {
    for (channel, answer) in answers {
        // If the caller has disconnected, the result is dropped. A dropped `ClaimedBatch` undoes its claims.
        let _ = channel.send(answer);
    }
}

#[cfg(test)]
mod tests;
