//! The loop of a worker.
//!
//! A worker claims as many events as it has free slots, and waits for them in a long poll. Each event runs in a task of
//! its own ([`job`]), which extends the lease and settles the event in the end.
//!
//! A claim has an idempotency key until it is answered: if the answer is lost, the repeated claim gets the same events.
//! A worker that drains claims no more, finishes what runs, and releases what it is given too late. The server may be
//! away for any time; the worker goes on when it is back.
//!
//! ```no_run
//! use std::sync::Arc;
//! use waybill::client::{ClaimedEvent, Client, ClientError, Handler, Job, Outcome, Worker, WorkerOptions};
//!
//! struct Resize;
//!
//! impl Handler for Resize {
//!     async fn handle(&self, event: Arc<ClaimedEvent>, _job: Job) -> Outcome {
//!         println!("resizing {}", event.payload.get());
//!         Outcome::Complete { result: None }
//!     }
//! }
//!
//! # async fn work() -> Result<(), ClientError> {
//! let client = Client::new("http://127.0.0.1:8080", None)?;
//! Worker::new(client, WorkerOptions::new(["images"])).run(Resize).await
//! # }
//! ```

mod job;
mod outage;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use job::{Job, StopReason};
use outage::OutageLog;

use super::pause::Pause;
use super::{Client, ClientError, random_key, to_json};
use crate::client::ClaimedEvent;

/// The time that a claim waits for an event at the server.
const WAIT: Duration = Duration::from_secs(20);

/// The time that a claim may take beyond its wait.
const CLAIM_MARGIN: Duration = Duration::from_secs(15);

/// For how long a worker that drains asks for the events of a claim that it gave up.
const LAST_ASKS: Duration = Duration::from_secs(5);

/// How long a worker that was aborted tries to settle and release events.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// How the work on an event ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The event is COMPLETED, with a result if there is one.
    Complete { result: Option<Box<RawValue>> },
    /// The event is tried again later, or is FAILED for good if it is not retryable or was the last attempt.
    Fail { error: String, retryable: bool },
    /// The event goes back to the queue without counting an attempt.
    Release { delay: Duration },
}

/// What a worker does with an event.
pub trait Handler: Send + Sync + 'static {
    /// Works on an event. It should end soon after [`Job::stopped`]: the event is cancelled, or belongs to somebody
    /// else.
    fn handle(&self, event: Arc<ClaimedEvent>, job: Job) -> impl Future<Output = Outcome> + Send;
}

/// The settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The worker's name, `{hostname}:{pid}`.
    pub worker_id: String,
    pub tags: Vec<String>,
    /// How many events are worked on at once.
    pub concurrency: usize,
    /// How long an event is held without a sign of life.
    pub lease: Duration,
    /// How often the lease is extended, and a cancellation noticed.
    pub heartbeat: Duration,
    /// How long before the end of a lease that could not be extended its handler is stopped.
    pub margin: Duration,
}

impl WorkerOptions {
    /// Returns the options of a worker for these tags: one event at a time, a lease of 5 minutes.
    pub fn new<T: Into<String>>(tags: impl IntoIterator<Item = T>) -> Self {
        let host = gethostname::gethostname().to_string_lossy().into_owned();
        WorkerOptions {
            worker_id: format!("{host}:{}", std::process::id()),
            tags: tags.into_iter().map(Into::into).collect(),
            concurrency: 1,
            lease: Duration::from_secs(300),
            heartbeat: Duration::from_secs(10),
            margin: Duration::from_secs(10),
        }
    }
}

/// A worker: claims events and gives them to a handler.
#[derive(Debug, Clone)]
pub struct Worker {
    client: Client,
    options: Arc<WorkerOptions>,
    drain: CancellationToken,
    abort: CancellationToken,
    outage: Arc<OutageLog>,
    unsettled: Arc<AtomicUsize>,
}

#[derive(Serialize)]
struct ClaimRequest<'a> {
    tags: &'a [String],
    worker_id: &'a str,
    max: usize,
    wait_seconds: u64,
    lease_seconds: f64,
    idempotency_key: &'a str,
}

#[derive(Deserialize)]
struct ClaimResponse {
    events: Vec<ClaimedEvent>,
}

/// A claim that is not answered yet, with the slots for its events.
struct Claim {
    key: String,
    slots: Vec<OwnedSemaphorePermit>,
}

/// What a claim has brought.
struct Claimed {
    events: Vec<ClaimedEvent>,
    /// Whether it was sent more than once: its leases may have begun long ago.
    is_repeated: bool,
}

impl Worker {
    pub fn new(client: Client, options: WorkerOptions) -> Self {
        Worker {
            client,
            options: Arc::new(options),
            drain: CancellationToken::new(),
            abort: CancellationToken::new(),
            outage: Arc::default(),
            unsettled: Arc::default(),
        }
    }

    /// Makes the worker claim no more, and [`Worker::run`] return when all that runs has ended.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Drains, and stops all handlers. Their events are released.
    pub fn abort(&self) {
        self.drain.cancel();
        self.abort.cancel();
    }

    /// Returns the number of events that an aborted worker could not settle, because the server was away. They come back
    /// when their leases end.
    pub fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::Relaxed)
    }

    /// Works until the worker is drained, or the server refuses its claims for good.
    pub async fn run(&self, handler: impl Handler) -> Result<(), ClientError> {
        let handler = Arc::new(handler);
        let slots = Arc::new(Semaphore::new(self.options.concurrency));
        let jobs = TaskTracker::new();
        let ended = loop {
            let Some(claim) = self.next_claim(&slots).await else { break Ok(()) };
            match self.claim(&claim).await {
                Ok(Some(Claimed { events, is_repeated })) => {
                    let received = Instant::now();
                    for (event, slot) in events.into_iter().zip(claim.slots) {
                        let (worker, handler) = (self.clone(), Arc::clone(&handler));
                        let held_since = (!is_repeated).then_some(received);
                        jobs.spawn(async move {
                            worker.work_on(event, held_since, &*handler).await;
                            drop(slot);
                        });
                    }
                }
                Ok(None) => {
                    tokio::select! {
                        () = self.give_up(&claim) => {}
                        () = self.long_aborted() => {}
                    }
                    break Ok(());
                }
                Err(refused) => break Err(refused),
            }
        };
        jobs.close();
        jobs.wait().await;
        ended
    }

    /// Waits for a free slot. Returns a claim for all that are free, or `None` if the worker drains.
    async fn next_claim(&self, slots: &Arc<Semaphore>) -> Option<Claim> {
        let first = tokio::select! {
            biased;
            () = self.drain.cancelled() => return None,
            slot = Arc::clone(slots).acquire_owned() => slot.ok()?,
        };
        let mut slots_of_claim = vec![first];
        while let Ok(slot) = Arc::clone(slots).try_acquire_owned() {
            slots_of_claim.push(slot);
        }
        Some(Claim { key: random_key(), slots: slots_of_claim })
    }

    /// Claims events, and tries again while the server is away. Returns `None` if the worker drains.
    async fn claim(&self, claim: &Claim) -> Result<Option<Claimed>, ClientError> {
        let mut pause = Pause::default();
        let mut is_repeated = false;
        loop {
            let claimed = tokio::select! {
                biased;
                () = self.drain.cancelled() => return Ok(None),
                claimed = self.send_claim(claim, WAIT) => claimed,
            };
            match claimed {
                Ok(events) => return Ok(Some(Claimed { events, is_repeated })),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => {
                    is_repeated = true;
                    tokio::select! {
                        () = self.drain.cancelled() => return Ok(None),
                        () = pause.wait(&error) => {}
                    }
                }
            }
        }
    }

    async fn send_claim(&self, claim: &Claim, wait: Duration) -> Result<Vec<ClaimedEvent>, ClientError> {
        let body = to_json(&ClaimRequest {
            tags: &self.options.tags,
            worker_id: &self.options.worker_id,
            max: claim.slots.len(),
            wait_seconds: wait.as_secs(),
            lease_seconds: self.options.lease.as_secs_f64(),
            idempotency_key: &claim.key,
        })?;
        let sent_at = Instant::now();
        let sent = self.client.call_within(wait + CLAIM_MARGIN, Method::POST, "/events/claim", Some(body)).await;
        self.outage.note(sent_at, &sent);
        sent.map(|response: ClaimResponse| response.events)
    }

    /// Releases the events of a claim whose answer the worker did not wait for.
    async fn give_up(&self, claim: &Claim) {
        let (until, mut pause) = (Instant::now() + LAST_ASKS, Pause::default());
        loop {
            match self.send_claim(claim, Duration::ZERO).await {
                Ok(events) => {
                    for event in events {
                        let release = Outcome::Release { delay: Duration::ZERO };
                        if timeout_at(until, self.settle(&event, &release, None)).await.is_err() {
                            log::warn!(event_id = event.id; "not released: it comes back when its lease ends");
                        }
                    }
                    return;
                }
                Err(error) if error.is_final() => return,
                Err(error) if Instant::now() < until => pause.wait(&error).await,
                Err(_) => break,
            }
        }
        log::warn!("the server is away: events of the last claim come back when their leases end");
    }

    /// Returns a moment after the worker was aborted.
    async fn long_aborted(&self) {
        self.abort.cancelled().await;
        tokio::time::sleep(LAST_PATIENCE).await;
    }
}
