//! Fusion: concurrent calls of one verb become one statement.
//!
//! A [`Lane`] is the queue in front of a verb. While one batch is at the database the next
//! one gathers, and leaves the moment the first is back: there is no timer, so a lone call
//! waits for nobody, and under load batches grow by themselves until the database is the
//! only thing that anybody waits for. Answers go out after the commit.
//!
//! Most of what a small statement costs is the statement itself, so fewer and larger ones win
//! even if the database could run several at once. So a second batch of a lane leaves beside
//! the first only once as many calls have gathered as are away, and all lanes share a [`Door`]
//! that lets a few batches through at a time, in turn. But a batch can be slow (it is large, or
//! it waits for a row that somebody holds), and must not hold everybody up: whoever has waited
//! for longer than a batch usually takes goes all the same.
//!
//! What could go wrong, and where it is dealt with:
//! - *One caller's bad row fails the others*: calls are checked before they come here, and a
//!   batch that the database refuses is split until the culprit stands alone ([`split`]).
//! - *A caller has gone*: its call is dropped before it is run, not after. A batch is put
//!   together only when the database can be had ([`Gate`]), or what was answered with "come
//!   back later" would be carried out all the same when the database comes back.
//! - *Too many wait*: the lane is bounded, and says so at once instead of growing.
//! - *A panic or a lost connection*: everybody in the batch is told, nobody waits for ever.
//! - *One verb starves another*: each has its own lane, and their turns alternate.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, Semaphore, mpsc, oneshot};

use crate::error::Error;

use super::ANSWER_WITHIN;

/// What a lane runs: many calls in, as many answers out, in the same order.
pub type Answers<A> = Vec<Result<A, Error>>;
/// Opens when the database can be had, or says that it cannot.
pub type Gate = dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> + Send + Sync;

/// What all batches pass on their way to the database.
pub struct Door {
    /// Lets so many through at a time, first come, first served.
    pub turnstile: Arc<Semaphore>,
    /// Whether there is a database.
    pub gate: Box<Gate>,
}

type Run<C, A> = dyn Fn(Vec<C>) -> Pin<Box<dyn Future<Output = Answers<A>> + Send>> + Send + Sync;

/// How a lane behaves.
#[derive(Debug, Clone, Copy)]
pub struct LaneShape {
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
pub struct Lane<C, A> {
    entrance: mpsc::Sender<Waiting<C, A>>,
    traffic: Arc<Traffic>,
}

/// How much of a lane is away, and when that, or what has gathered, changes.
#[derive(Default)]
struct Traffic {
    calls_away: AtomicUsize,
    changed: Notify,
}

impl Traffic {
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

    fn come_back(&self, calls: usize) {
        self.calls_away.fetch_sub(calls, Ordering::AcqRel);
        self.changed.notify_one();
    }
}

struct Waiting<C, A> {
    call: C,
    weight: usize,
    answer: oneshot::Sender<Result<A, Error>>,
}

impl<C: Send + Sync + 'static, A: Send + 'static> Lane<C, A> {
    /// Opens a lane; it closes when it is dropped.
    pub fn open<F, Fut>(runtime: &Handle, shape: LaneShape, door: Arc<Door>, run: F) -> Self
    where
        F: Fn(Vec<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answers<A>> + Send + 'static,
    {
        let (entrance, exit) = mpsc::channel(shape.capacity);
        let exit = Arc::new(Mutex::new(Exit { queue: exit, held_over: None }));
        let run: Arc<Run<C, A>> = Arc::new(move |calls| run(calls).boxed());
        let traffic = Arc::new(Traffic::default());
        for _ in 0..shape.width {
            runtime.spawn(serve(shape, exit.clone(), traffic.clone(), door.clone(), run.clone()));
        }
        Lane { entrance, traffic }
    }

    /// How many calls wait for the next batch.
    pub fn queued(&self) -> usize {
        self.entrance.max_capacity() - self.entrance.capacity()
    }

    /// Queues a call and waits for its answer. `weight` is its share of a batch, in rows.
    pub async fn call(&self, call: C, weight: usize) -> Result<A, Error> {
        self.call_within(call, weight, ANSWER_WITHIN).await
    }

    /// The same for a caller that has less time left.
    pub async fn call_within(&self, call: C, weight: usize, time_left: Duration) -> Result<A, Error> {
        let (answer, answered) = oneshot::channel();
        self.entrance.try_send(Waiting { call, weight, answer }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::Overloaded,
            mpsc::error::TrySendError::Closed(_) => Error::unavailable("the server is stopping".into()),
        })?;
        self.traffic.changed.notify_one();
        match tokio::time::timeout(time_left, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Error::unavailable("the server is stopping".into())),
            Err(_) => Err(Error::unavailable("no answer from the database in time".into())),
        }
    }
}

/// The end of the queue from which batches are taken, by one taker at a time.
struct Exit<C, A> {
    queue: mpsc::Receiver<Waiting<C, A>>,
    held_over: Option<Waiting<C, A>>,
}

impl<C, A> Exit<C, A> {
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

    /// Takes that call along with what has gathered behind it.
    fn take_batch(&mut self, max_weight: usize) -> Vec<Waiting<C, A>> {
        let mut batch: Vec<Waiting<C, A>> = self.held_over.take().into_iter().collect();
        let mut weight: usize = batch.iter().map(|waiting| waiting.weight).sum();
        while let Ok(waiting) = self.queue.try_recv() {
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

async fn serve<C: Send + Sync + 'static, A: Send + 'static>(
    shape: LaneShape,
    exit: Arc<Mutex<Exit<C, A>>>,
    traffic: Arc<Traffic>,
    door: Arc<Door>,
    run: Arc<Run<C, A>>,
) {
    loop {
        let mut taking = exit.lock().await;
        if !taking.wait_for_first().await {
            return;
        }
        let next_turn = async {
            traffic.balance(|| taking.gathered()).await;
            // Nobody closes the turnstile, so there is always a permit to come.
            door.turnstile.clone().acquire_owned().await.ok()
        };
        let turn = tokio::time::timeout(shape.patience, next_turn).await;
        let gate = (door.gate)().await;
        let batch = taking.take_batch(shape.max_weight);
        let here = batch.into_iter().filter(|waiting| !waiting.answer.is_closed());
        let (calls, callers): (Vec<C>, Vec<_>) = here.map(|waiting| (waiting.call, waiting.answer)).unzip();
        if calls.is_empty() {
            continue;
        }
        if let Err(error) = gate {
            let told = callers.iter().map(|_| Err(error.for_another())).collect();
            answer_all(callers, told);
            continue;
        }
        let size = calls.len();
        traffic.leave(size);
        drop(taking);
        let outcome = AssertUnwindSafe(run(calls)).catch_unwind().await;
        drop(turn);
        traffic.come_back(size);
        match outcome {
            Ok(answers) => answer_all(callers, answers),
            Err(_) => {
                log::error!(lane = shape.name, callers = callers.len(); "a batch panicked");
                let told = callers.iter().map(|_| Err(Error::unavailable("the batch failed".into()))).collect();
                answer_all(callers, told);
            }
        }
    }
}

fn answer_all<A>(callers: Vec<oneshot::Sender<Result<A, Error>>>, answers: Answers<A>) {
    for (caller, answer) in callers.into_iter().zip(answers) {
        // Whoever has gone meanwhile leaves the answer to be dropped; claimed work notices.
        let _ = caller.send(answer);
    }
}

/// Runs calls together; if the database refuses the batch, or it turns out to be too much, runs
/// its halves, down to the call that is to blame. A database that is away is nobody's fault, and
/// splits nothing.
pub async fn split<C, A, F, Fut>(calls: Vec<C>, run: &F) -> Answers<A>
where
    C: Clone + Send,
    A: Send,
    F: Fn(Vec<C>) -> Fut + Sync,
    Fut: Future<Output = Result<Vec<A>, Error>> + Send,
{
    let mut answers = Vec::with_capacity(calls.len());
    let mut ahead = vec![calls];
    while let Some(mut calls) = ahead.pop() {
        match run(calls.clone()).await {
            Ok(batch) => answers.extend(batch.into_iter().map(Ok)),
            Err(error @ (Error::Internal(_) | Error::Invalid(_))) if calls.len() > 1 => {
                log::warn!(calls = calls.len(); "a batch was refused and is split: {error}");
                let second = calls.split_off(calls.len() / 2);
                ahead.push(second);
                ahead.push(calls);
            }
            Err(error) if calls.len() == 1 => answers.push(Err(error)),
            Err(error) => answers.extend(calls.iter().map(|_| Err(error.for_another()))),
        }
    }
    answers
}

#[cfg(test)]
mod tests;
