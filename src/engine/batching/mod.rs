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
//! Failures, and what handles them:
//! - *A bad row of one caller fails the other calls*: calls are validated before they are queued, and a
//!   batch that the database refuses is split until the bad call is alone ([`split`]).
//! - *A caller disconnects, or its time is over*: its call is dropped before it runs. A batch is formed
//!   only when it has a connection ([`ConnectionSource`]), and its calls are marked as sent just before
//!   the first statement ([`deadline`]).
//! - *Too many calls wait*: the queue is bounded, and further calls are refused at once. A call with too
//!   little time left for a batch is refused, too.
//! - *A panic or a lost connection*: every caller of the batch gets an error.
//! - *The database hangs*: a batch that has not ended after `GIVE_UP_AFTER` is abandoned.
//! - *One verb starves another*: each verb has its own batcher, and permits are granted in order.

pub(crate) mod batchers;
pub(crate) mod deadline;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::error::Error;

use crate::engine::batching::deadline::{CallDeadline, WithDeadline, too_late};
use crate::engine::stopping;
use crate::engine::transaction::GIVE_UP_AFTER;

/// The results of the calls of a batch, in the order of the calls.
pub(crate) type Answers<A> = Vec<Result<A, Error>>;
/// Returns the connection for a batch, or an error if there is none.
pub(crate) type ConnectionSource<K> = dyn Fn() -> Pin<Box<dyn Future<Output = Result<K, Error>> + Send>> + Send + Sync;

/// Limits the number of batches that run at once, and provides their connections.
pub(crate) struct BatchLimiter<K> {
    /// One permit per batch, granted in the order of the requests.
    pub permits: Arc<Semaphore>,
    pub connect: Box<ConnectionSource<K>>,
}

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
    /// The maximum number of batches of this batcher that run at once.
    pub width: usize,
    /// The time that a batch waits for its permit before it runs without one.
    pub patience: Duration,
    /// The maximum weight of a batch, in rows. A single call may exceed it.
    pub max_weight: usize,
}

/// The queue in front of one verb.
pub(crate) struct Batcher<C, A> {
    sender: mpsc::Sender<QueuedCall<C, A>>,
    traffic: Arc<BatchTraffic>,
}

/// The calls of a batcher that are in flight, and the duration of its last batch.
#[derive(Default)]
struct BatchTraffic {
    calls_in_flight: AtomicUsize,
    /// Notified when the number of calls in flight or in the queue changes.
    changed: Notify,
    last: std::sync::Mutex<Option<LastBatch>>,
}

#[derive(Debug, Clone, Copy)]
struct LastBatch {
    ended_at: Instant,
    took: Duration,
    weight: usize,
}

impl BatchTraffic {
    /// Waits until at least as many calls have gathered as are in flight.
    async fn balance(&self, gathered: impl Fn() -> usize) {
        loop {
            let changed = self.changed.notified();
            if gathered() >= self.calls_in_flight.load(Ordering::Acquire) {
                return;
            }
            changed.await;
        }
    }

    fn batch_started(&self, calls: usize) {
        self.calls_in_flight.fetch_add(calls, Ordering::AcqRel);
    }

    fn batch_ended(&self, calls: usize, weight: usize, started_at: Instant) {
        let ended_at = Instant::now();
        let last = LastBatch { ended_at, took: ended_at - started_at, weight };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        self.calls_in_flight.fetch_sub(calls, Ordering::AcqRel);
        self.changed.notify_one();
    }

    fn last(&self) -> Option<LastBatch> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
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
    call: WithDeadline<C>,
    weight: usize,
    answer: Answer<A>,
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
        let (sender, receiver) = mpsc::channel(shape.capacity);
        let queue = Arc::new(Mutex::new(CallQueue { receiver, held_over: None }));
        let run: Arc<Run<C, A, K>> = Arc::new(move |calls, connection| run(calls, connection).boxed());
        let traffic = Arc::new(BatchTraffic::default());
        for _ in 0..shape.width {
            runtime.spawn(serve(shape, queue.clone(), traffic.clone(), limiter.clone(), run.clone()));
        }
        Batcher { sender, traffic }
    }

    /// Returns the number of calls that wait for the next batch.
    pub(crate) fn queued(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }

    /// Returns whether calls are in flight or wait.
    pub(crate) fn is_busy(&self) -> bool {
        self.traffic.calls_in_flight.load(Ordering::Acquire) > 0 || self.queued() > 0
    }

    /// Queues a call and waits for its result. `weight` is its weight in a batch, in rows.
    pub(crate) async fn call(&self, call: C, weight: usize) -> Result<A, Error> {
        self.call_since(call, weight, Instant::now()).await
    }

    /// Like [`Batcher::call`], for a caller that arrived earlier and has less time left.
    pub(crate) async fn call_since(&self, call: C, weight: usize, arrived: Instant) -> Result<A, Error> {
        let (answer, mut answered) = oneshot::channel();
        let time = CallDeadline::arrived_at(arrived);
        let caller = CancelOnDrop(time.clone());
        let call = WithDeadline { call, time };
        self.sender.try_send(QueuedCall { call, weight, answer }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::Overloaded,
            mpsc::error::TrySendError::Closed(_) => stopping(),
        })?;
        self.traffic.changed.notify_one();
        let time = &caller.0;
        let without_answer = |_| Err(time.without_answer(stopping(), "the batch ended without an answer"));
        if let Ok(answer) = timeout_at(time.send_by(), &mut answered).await {
            return answer.unwrap_or_else(without_answer);
        }
        if time.cancel() {
            return Err(self.traffic.not_sent(time));
        }
        match timeout_at(time.respond_by(), answered).await {
            Ok(answer) => answer.unwrap_or_else(without_answer),
            Err(_) => Err(Error::OutcomeUnknown("no answer from the database in time".into())),
        }
    }
}

/// The calls that wait, on the receiving side. One task at a time takes a batch from it.
struct CallQueue<C, A> {
    receiver: mpsc::Receiver<QueuedCall<C, A>>,
    /// A call that was received, but is not part of a batch yet.
    held_over: Option<QueuedCall<C, A>>,
}

impl<C, A> CallQueue<C, A> {
    /// Waits for a first call. Returns false if the batcher is closed and the queue is empty.
    async fn wait_for_first(&mut self) -> bool {
        if self.held_over.is_none() {
            self.held_over = self.receiver.recv().await;
        }
        self.held_over.is_some()
    }

    /// Returns the number of calls that wait.
    fn gathered(&self) -> usize {
        self.receiver.len() + usize::from(self.held_over.is_some())
    }

    /// Takes the first call and the calls behind it, up to `max_weight`. Drops all cancelled calls on the
    /// way, without a limit, because the memory that they occupy is not counted anywhere any more.
    fn take_batch(&mut self, max_weight: usize) -> Vec<QueuedCall<C, A>> {
        let is_wanted = |waiting: &QueuedCall<C, A>| waiting.call.time.is_wanted();
        let mut batch: Vec<QueuedCall<C, A>> = self.held_over.take().into_iter().filter(is_wanted).collect();
        let mut weight: usize = batch.iter().map(|waiting| waiting.weight).sum();
        while let Ok(waiting) = self.receiver.try_recv() {
            if !is_wanted(&waiting) {
                continue;
            }
            if weight + waiting.weight > max_weight {
                self.held_over = Some(waiting);
                break;
            }
            weight += waiting.weight;
            batch.push(waiting);
        }
        batch
    }
}

/// Takes batches from the queue and runs them, until the batcher is closed.
async fn serve<C: Send + Sync + 'static, A: Send + 'static, K: Send + 'static>(
    shape: BatcherSettings,
    shared_queue: Arc<Mutex<CallQueue<C, A>>>,
    traffic: Arc<BatchTraffic>,
    limiter: Arc<BatchLimiter<K>>,
    run: Arc<Run<C, A, K>>,
) {
    loop {
        let mut queue = shared_queue.lock().await;
        if !queue.wait_for_first().await {
            return;
        }
        let next_permit = async {
            traffic.balance(|| queue.gathered()).await;
            // The semaphore is never closed, so this always yields a permit.
            limiter.permits.clone().acquire_owned().await.ok()
        };
        let permit = tokio::time::timeout(shape.patience, next_permit).await;
        let connect = (limiter.connect)().await;
        let batch = queue.take_batch(shape.max_weight);
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
        let (calls, callers) = take_in_time(batch, traffic.time_needed(weight));
        if calls.is_empty() {
            continue;
        }
        let (size, started_at) = (calls.len(), Instant::now());
        let times: Vec<Arc<CallDeadline>> = calls.iter().map(|timed| timed.time.clone()).collect();
        traffic.batch_started(size);
        drop(queue);
        let answers = run_to_result(shape.name, &times, run(calls, connection)).await;
        drop(permit);
        traffic.batch_ended(size, weight, started_at);
        answer_all(callers, answers);
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

/// Returns the calls of a batch that can be sent, and the channels to their callers. Calls with less time
/// left than `needed` are refused, and cancelled calls are dropped.
fn take_in_time<C, A>(batch: Vec<QueuedCall<C, A>>, needed: Duration) -> (Vec<WithDeadline<C>>, Vec<Answer<A>>) {
    let mut in_time = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
    for QueuedCall { call, answer, .. } in batch {
        if call.time.left() < needed && call.time.cancel() {
            answer_all(vec![answer], vec![Err(Error::Overloaded)]);
        } else if call.time.is_wanted() {
            in_time.0.push(call);
            in_time.1.push(answer);
        }
    }
    in_time
}

type Answer<A> = oneshot::Sender<Result<A, Error>>;

fn answer_all<A>(callers: Vec<Answer<A>>, answers: Answers<A>) {
    for (caller, answer) in callers.into_iter().zip(answers) {
        // If the caller has disconnected, the result is dropped. A dropped `ClaimedBatch` undoes its claims.
        let _ = caller.send(answer);
    }
}

/// Runs calls together. If the database refuses the batch, or the batch is too large, runs its halves, down
/// to the single call that causes the error. An outage is not caused by any call, and splits nothing.
pub(crate) async fn split<C, A, F, Fut>(calls: Vec<C>, run: &F) -> Answers<A>
where
    C: Clone + Send,
    A: Send,
    F: Fn(Vec<C>) -> Fut + Sync,
    Fut: Future<Output = Result<Answers<A>, Error>> + Send,
{
    let mut answers = Vec::with_capacity(calls.len());
    let mut pending = if calls.is_empty() { Vec::new() } else { vec![calls] };
    while let Some(mut calls) = pending.pop() {
        match run(calls.clone()).await {
            Ok(batch) => answers.extend(batch),
            Err(error @ (Error::Internal(_) | Error::Invalid(_))) if calls.len() > 1 => {
                log::warn!(calls = calls.len(); "a batch was refused and is split: {error}");
                let second = calls.split_off(calls.len() / 2);
                pending.extend([second, calls]);
            }
            Err(error) if calls.len() == 1 => answers.push(Err(error)),
            Err(outage) => answers.extend(calls.iter().map(|_| Err(outage.for_another()))),
        }
    }
    answers
}

#[cfg(test)]
mod tests;
