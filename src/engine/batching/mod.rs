//! Batching: concurrent calls of one verb become one statement.
//!
//! A [`Batcher`] is the queue in front of a verb. While one batch is at the database the next
//! one gathers, and leaves the moment the first is back: there is no timer, so a lone call
//! waits for nobody, and under load batches grow by themselves until the database is the
//! only thing that anybody waits for. Answers go out after the commit.
//!
//! Most of what a small statement costs is the statement itself, so fewer and larger ones win
//! even if the database could run several at once. So a second batch of a batcher leaves beside
//! the first only once as many calls have gathered as are away, and all batchers share a [`BatchLimiter`]
//! that lets a few batches through at a time, in turn. But a batch can be slow (it is large, or
//! it waits for a row that somebody holds), and must not hold everybody up: whoever has waited
//! for longer than a batch usually takes goes all the same.
//!
//! What could go wrong, and where it is dealt with:
//! - *One caller's bad row fails the others*: calls are checked before they come here, and a
//!   batch that the database refuses is split until the culprit stands alone ([`split`]).
//! - *A caller has gone, or its time is over*: its call is dropped before it is run, not after.
//!   A batch is put together only when there is a connection for it ([`ConnectionSource`]), which goes with
//!   it. Whoever runs it notes which calls are sent, just before the first statement (see
//!   [`crate::engine::batching::deadline`]).
//! - *Too many wait*: the batcher is bounded, and says so at once instead of growing. A call that has
//!   waited for so long that a batch would hardly be over in time is refused, too.
//! - *A panic or a lost connection*: everybody in the batch is told, nobody waits for ever.
//! - *The database stands still*: a batch that is not back after half a minute is given up.
//! - *One verb starves another*: each has its own batcher, and their turns alternate.

pub mod batchers;
pub mod deadline;

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

use crate::error::{Error, OutageKind};

use crate::engine::batching::deadline::{CallDeadline, WithDeadline, too_late};
use crate::engine::stopping;
use crate::engine::transaction::GIVE_UP_AFTER;

/// What a batcher runs: many calls in, as many answers out, in the same order.
pub type Answers<A> = Vec<Result<A, Error>>;
/// Gets the connection that a batch is to run on, or says that there is none.
pub type ConnectionSource<K> = dyn Fn() -> Pin<Box<dyn Future<Output = Result<K, Error>> + Send>> + Send + Sync;

/// What all batches pass on their way to the database.
pub struct BatchLimiter<K> {
    /// Lets so many through at a time, first come, first served.
    pub permits: Arc<Semaphore>,
    /// Where a batch gets its connection.
    pub connect: Box<ConnectionSource<K>>,
}

type Run<C, A, K> = dyn Fn(Vec<WithDeadline<C>>, K) -> Pin<Box<dyn Future<Output = Answers<A>> + Send>> + Send + Sync;

/// However long the last batch took, a call with this much time left is sent.
const ENOUGH_TIME: Duration = Duration::from_secs(2);

/// How a batcher behaves.
#[derive(Debug, Clone, Copy)]
pub struct BatcherSettings {
    /// For the log.
    pub name: &'static str,
    /// How many calls may wait.
    pub capacity: usize,
    /// How many of its batches may be at the database at once.
    pub width: usize,
    /// How long a batch waits for its turn before it goes without one.
    pub patience: Duration,
    /// How much one batch may weigh.
    pub max_weight: usize,
}

/// The queue in front of one verb.
pub struct Batcher<C, A> {
    entrance: mpsc::Sender<QueuedCall<C, A>>,
    traffic: Arc<BatchTraffic>,
}

/// How much of a batcher is away, when that, or what has gathered, changes, and how the last batch
/// that came back fared.
#[derive(Default)]
struct BatchTraffic {
    calls_away: AtomicUsize,
    changed: Notify,
    last: std::sync::Mutex<Option<LastBatch>>,
}

#[derive(Debug, Clone, Copy)]
struct LastBatch {
    back_at: Instant,
    took: Duration,
    weight: usize,
}

impl BatchTraffic {
    /// Waits until at least as many calls have gathered as are away.
    async fn balance(&self, gathered: impl Fn() -> usize) {
        loop {
            let changed = self.changed.notified();
            if gathered() >= self.calls_away.load(Ordering::Acquire) {
                return;
            }
            changed.await;
        }
    }

    fn leave(&self, calls: usize) {
        self.calls_away.fetch_add(calls, Ordering::AcqRel);
    }

    fn come_back(&self, calls: usize, weight: usize, left_at: Instant) {
        let back_at = Instant::now();
        let last = LastBatch { back_at, took: back_at - left_at, weight };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        self.calls_away.fetch_sub(calls, Ordering::AcqRel);
        self.changed.notify_one();
    }

    fn last(&self) -> Option<LastBatch> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much time a call must have left to be sent in a batch of this weight: half as much again
    /// as the last batch took, or less for a lighter one. Otherwise a batcher that is behind would send
    /// only what is given up before it is done.
    fn time_needed(&self, weight: usize) -> Duration {
        let Some(last) = self.last() else { return Duration::ZERO };
        let share = (weight as f64 / last.weight.max(1) as f64).min(1.0);
        last.took.mul_f64(1.5 * share).min(ENOUGH_TIME)
    }

    /// The answer to a call that was not sent in time. If batches have come back while it waited,
    /// the database is well, and there is merely too much to do.
    fn not_sent(&self, time: &CallDeadline) -> Error {
        let is_moving = self.last().is_some_and(|last| last.back_at > time.arrived());
        if is_moving { Error::Overloaded } else { too_late() }
    }
}

struct QueuedCall<C, A> {
    call: WithDeadline<C>,
    weight: usize,
    answer: Answer<A>,
}

/// A call that is given up when its caller goes away.
struct CancelOnDrop(Arc<CallDeadline>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl<C: Send + Sync + 'static, A: Send + 'static> Batcher<C, A> {
    /// Opens a batcher; it closes when it is dropped.
    pub fn open<K, F, Fut>(runtime: &Handle, shape: BatcherSettings, limiter: Arc<BatchLimiter<K>>, run: F) -> Self
    where
        K: Send + 'static,
        F: Fn(Vec<WithDeadline<C>>, K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answers<A>> + Send + 'static,
    {
        let (entrance, queue_end) = mpsc::channel(shape.capacity);
        let queue_end = Arc::new(Mutex::new(CallQueue { queue: queue_end, held_over: None }));
        let run: Arc<Run<C, A, K>> = Arc::new(move |calls, connection| run(calls, connection).boxed());
        let traffic = Arc::new(BatchTraffic::default());
        for _ in 0..shape.width {
            runtime.spawn(serve(shape, queue_end.clone(), traffic.clone(), limiter.clone(), run.clone()));
        }
        Batcher { entrance, traffic }
    }

    /// How many calls wait for the next batch.
    pub fn queued(&self) -> usize {
        self.entrance.max_capacity() - self.entrance.capacity()
    }

    /// Whether calls are at the database or wait for it.
    pub fn is_busy(&self) -> bool {
        self.traffic.calls_away.load(Ordering::Acquire) > 0 || self.queued() > 0
    }

    /// Queues a call and waits for its answer. `weight` is its share of a batch, in rows.
    pub async fn call(&self, call: C, weight: usize) -> Result<A, Error> {
        self.call_since(call, weight, Instant::now()).await
    }

    /// The same for a caller that has arrived earlier, and has less time left.
    pub async fn call_since(&self, call: C, weight: usize, arrived: Instant) -> Result<A, Error> {
        let (answer, mut answered) = oneshot::channel();
        let time = CallDeadline::arrived_at(arrived);
        let caller = CancelOnDrop(time.clone());
        let call = WithDeadline { call, time };
        self.entrance.try_send(QueuedCall { call, weight, answer }).map_err(|error| match error {
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

/// The end of the queue from which batches are taken, by one taker at a time.
struct CallQueue<C, A> {
    queue: mpsc::Receiver<QueuedCall<C, A>>,
    held_over: Option<QueuedCall<C, A>>,
}

impl<C, A> CallQueue<C, A> {
    /// Waits for a first call; answers whether there will ever be one.
    async fn wait_for_first(&mut self) -> bool {
        if self.held_over.is_none() {
            self.held_over = self.queue.recv().await;
        }
        self.held_over.is_some()
    }

    /// How many calls wait.
    fn gathered(&self) -> usize {
        self.queue.len() + usize::from(self.held_over.is_some())
    }

    /// Takes that call along with what has gathered behind it. Calls that were given up are dropped
    /// on the way, however many there are: nobody counts the memory that they take any more.
    fn take_batch(&mut self, max_weight: usize) -> Vec<QueuedCall<C, A>> {
        let is_wanted = |waiting: &QueuedCall<C, A>| waiting.call.time.is_wanted();
        let mut batch: Vec<QueuedCall<C, A>> = self.held_over.take().into_iter().filter(is_wanted).collect();
        let mut weight: usize = batch.iter().map(|waiting| waiting.weight).sum();
        while let Ok(waiting) = self.queue.try_recv() {
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

async fn serve<C: Send + Sync + 'static, A: Send + 'static, K: Send + 'static>(
    shape: BatcherSettings,
    queue_end: Arc<Mutex<CallQueue<C, A>>>,
    traffic: Arc<BatchTraffic>,
    limiter: Arc<BatchLimiter<K>>,
    run: Arc<Run<C, A, K>>,
) {
    loop {
        let mut taking = queue_end.lock().await;
        if !taking.wait_for_first().await {
            return;
        }
        let next_turn = async {
            traffic.balance(|| taking.gathered()).await;
            // Nobody closes the limit on batches, so there is always a permit to come.
            limiter.permits.clone().acquire_owned().await.ok()
        };
        let turn = tokio::time::timeout(shape.patience, next_turn).await;
        let connect = (limiter.connect)().await;
        let batch = taking.take_batch(shape.max_weight);
        let connection = match connect {
            Ok(connection) => connection,
            Err(error) => {
                let (_, callers) = take_in_time(batch, Duration::ZERO);
                let told = callers.iter().map(|_| Err(error.for_another())).collect();
                answer_all(callers, told);
                continue;
            }
        };
        let weight = batch.iter().map(|waiting| waiting.weight).sum();
        let (calls, callers) = take_in_time(batch, traffic.time_needed(weight));
        if calls.is_empty() {
            continue;
        }
        let (size, left_at) = (calls.len(), Instant::now());
        let times: Vec<Arc<CallDeadline>> = calls.iter().map(|timed| timed.time.clone()).collect();
        traffic.leave(size);
        drop(taking);
        let answers = run_to_result(shape.name, &times, run(calls, connection)).await;
        drop(turn);
        traffic.come_back(size, weight, left_at);
        answer_all(callers, answers);
    }
}

/// The answers of a batch, even if it panics or does not come back.
async fn run_to_result<A>(
    batcher: &'static str,
    times: &[Arc<CallDeadline>],
    running: impl Future<Output = Answers<A>>,
) -> Answers<A> {
    let why = match tokio::time::timeout(GIVE_UP_AFTER, AssertUnwindSafe(running).catch_unwind()).await {
        Ok(Ok(answers)) => return answers,
        Ok(Err(_)) => "a batch panicked",
        Err(_) => "a batch did not come back",
    };
    log::error!(batcher, callers = times.len(); "{why}");
    times.iter().map(|time| Err(time.without_answer(Error::Internal(why.into()), why))).collect()
}

/// What can be sent of a batch, and who waits for it. Whoever has too little time left is told so,
/// and whoever has gone is left out.
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
        // Whoever has gone meanwhile leaves the answer to be dropped; claimed work notices.
        let _ = caller.send(answer);
    }
}

/// Runs calls together. If the database refuses the batch, or it turns out to be too large, runs its
/// halves, down to the call that is to blame. An outage is not a fault of any call: nothing is split,
/// and nothing more is sent.
pub async fn split<C, A, F, Fut>(calls: Vec<C>, run: &F) -> Answers<A>
where
    C: Clone + Send,
    A: Send,
    F: Fn(Vec<C>) -> Fut + Sync,
    Fut: Future<Output = Result<Answers<A>, Error>> + Send,
{
    let mut answers = Vec::with_capacity(calls.len());
    let mut ahead = if calls.is_empty() { Vec::new() } else { vec![calls] };
    while let Some(mut calls) = ahead.pop() {
        match run(calls.clone()).await {
            Ok(batch) => answers.extend(batch),
            Err(error @ (Error::Internal(_) | Error::Invalid(_))) if calls.len() > 1 => {
                log::warn!(calls = calls.len(); "a batch was refused and is split: {error}");
                let second = calls.split_off(calls.len() / 2);
                ahead.extend([second, calls]);
            }
            Err(error @ (Error::Internal(_) | Error::Invalid(_))) => answers.push(Err(error)),
            Err(outage) => {
                answers.extend(calls.iter().map(|_| Err(outage.for_another())));
                answers.extend(ahead.drain(..).flatten().map(|_| Err(unsent())));
            }
        }
    }
    answers
}

/// Returns the error of a call that was not sent, because an earlier statement of its batch failed.
pub fn unsent() -> Error {
    Error::outage(OutageKind::Lost, "an earlier statement of the batch failed")
}

#[cfg(test)]
mod tests;
