//! One event in the hands of a worker: its lease is extended while its handler runs, and it is settled in the end.
//!
//! No event may run at two workers at once. So a handler is stopped when the server says that the lease is lost, and
//! also when the lease could not be extended and is about to end: the server may be away, and another one not.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::outage::is_recorded;
use super::{Handler, Outcome, Worker};
use crate::client::pause::Pause;
use crate::client::{ClaimedEvent, ClientError, to_json};

/// The least time between two heartbeats, however often progress is reported.
const LEAST_BEAT: Duration = Duration::from_millis(500);

/// How often a settlement is sent to a server that answers it with a fault. One that it can never take must not keep a
/// slot of the worker for ever.
const MAX_FAULTS: usize = 20;

/// Why a handler should stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Somebody has cancelled the event.
    Cancelled,
    /// The event belongs to somebody else, or may do so soon.
    LeaseLost,
    /// The worker was aborted.
    Aborted,
}

/// What a handler may do while it works on an event.
#[derive(Debug, Clone)]
pub struct Job {
    stop: CancellationToken,
    reason: Arc<Mutex<Option<StopReason>>>,
    progress: watch::Sender<Option<Arc<RawValue>>>,
}

impl Job {
    fn new() -> Self {
        Job { stop: CancellationToken::new(), reason: Arc::default(), progress: watch::Sender::new(None) }
    }

    /// Returns when the handler should stop.
    pub async fn stopped(&self) -> StopReason {
        self.stop.cancelled().await;
        self.reason().unwrap_or(StopReason::LeaseLost)
    }

    /// Returns why the handler should stop, or `None` if it should go on.
    pub fn reason(&self) -> Option<StopReason> {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports how far the work is. The latest report is sent with the next heartbeat.
    pub fn report_progress(&self, progress: Box<RawValue>) {
        self.progress.send_replace(Some(progress.into()));
    }

    fn stop(&self, reason: StopReason) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.stop.cancel();
    }

    /// Stops a job whose lease is not extended any more.
    async fn stop_for_good(&self, reason: StopReason) -> Infallible {
        self.stop(reason);
        std::future::pending().await
    }
}

#[derive(Serialize)]
struct Heartbeat<'a> {
    worker_id: &'a str,
    lease_id: i64,
    lease_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct HeartbeatResponse {
    cancel_requested: bool,
}

#[derive(Serialize, Default)]
struct Settlement<'a> {
    worker_id: &'a str,
    lease_id: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_time_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_seconds: Option<f64>,
}

impl Worker {
    /// Runs the handler on an event, and settles the event. `held_since` is when its lease began, if that is known.
    pub(super) async fn work_on(&self, event: ClaimedEvent, held_since: Option<Instant>, handler: &impl Handler) {
        let (event, job) = (Arc::new(event), Job::new());
        let Some(held_since) = self.hold(&event, held_since).await else { return };
        let begun = Instant::now();
        let handling = AssertUnwindSafe(handler.handle(Arc::clone(&event), job.clone())).catch_unwind();
        let outcome = tokio::select! {
            outcome = handling => outcome,
            never = self.keep_lease(&event, &job, held_since) => match never {},
        };
        let outcome =
            outcome.unwrap_or_else(|_| Outcome::Fail { error: "the handler panicked".into(), retryable: true });
        let took = Some(begun.elapsed());
        match job.reason() {
            Some(StopReason::LeaseLost) => {
                log::warn!(event_id = event.id, lease_id = event.lease_id; "the lease is lost: the event is not settled");
            }
            Some(StopReason::Aborted) if !matches!(outcome, Outcome::Complete { .. }) => {
                self.settle(&event, &Outcome::Release { delay: Duration::ZERO }, None).await;
            }
            _ => self.settle(&event, &outcome, took).await,
        }
    }

    /// Returns when the lease of an event began. If that is not known, the lease is extended first: it may be about to
    /// end, or may have ended. Returns `None` if the event is not held any more.
    async fn hold(&self, event: &ClaimedEvent, since: Option<Instant>) -> Option<Instant> {
        if since.is_some() {
            return since;
        }
        let (until, mut pause) = (Instant::now() + self.options.lease, Pause::default());
        loop {
            let sent = Instant::now();
            match self.beat(event, None).await {
                Ok(_) => return Some(sent),
                Err(error) if error.is_final() || sent >= until || self.abort.is_cancelled() => {
                    log::warn!(event_id = event.id; "the event is not held any more: {error}");
                    return None;
                }
                Err(error) => pause.wait(&error).await,
            }
        }
    }

    /// Extends the lease for as long as it is polled. Stops the job if the event is cancelled or its lease lost.
    async fn keep_lease(&self, event: &ClaimedEvent, job: &Job, held_since: Instant) -> Infallible {
        let mut progress = job.progress.subscribe();
        let mut last_moment = self.last_moment(held_since);
        let heartbeat = self.options.heartbeat.max(LEAST_BEAT).min(self.options.lease / 3);
        let mut next = Instant::now() + heartbeat;
        let mut is_aborted = false;
        loop {
            tokio::select! {
                // In this order: whatever else is due, a handler never runs beyond its lease, and a beat that an abort has
                // interrupted is not begun again before the abort is noted.
                biased;
                () = tokio::time::sleep_until(last_moment) => return job.stop_for_good(StopReason::LeaseLost).await,
                () = self.abort.cancelled(), if !is_aborted => {
                    // The lease is extended on: the handler has a while to stop.
                    job.stop(StopReason::Aborted);
                    is_aborted = true;
                    continue;
                }
                () = tokio::time::sleep_until(next) => {}
                Ok(()) = progress.changed() => {
                    tokio::time::sleep_until(last_moment.min(Instant::now() + LEAST_BEAT)).await;
                }
            }
            let sent = Instant::now();
            let reported = progress.borrow_and_update().clone();
            let beat = tokio::select! {
                beat = timeout_at(last_moment, self.beat(event, reported.as_deref())) => beat,
                () = self.abort.cancelled(), if !is_aborted => continue,
            };
            next = Instant::now() + heartbeat;
            match beat {
                Ok(Ok(response)) => {
                    last_moment = self.last_moment(sent);
                    if response.cancel_requested && job.reason().is_none() {
                        log::info!(event_id = event.id; "cancelled: its handler is stopped");
                        job.stop(StopReason::Cancelled);
                    }
                }
                Ok(Err(error)) if error.is_final() => {
                    log::warn!(event_id = event.id; "cannot extend the lease: {error}");
                    return job.stop_for_good(StopReason::LeaseLost).await;
                }
                // The server is away. Another beat may succeed before the last moment.
                Ok(Err(_)) | Err(_) => next = Instant::now() + (heartbeat / 4).max(LEAST_BEAT),
            }
        }
    }

    /// Returns when a handler must be stopped if a lease from this time on is not extended.
    fn last_moment(&self, from: Instant) -> Instant {
        from + self.options.lease.saturating_sub(self.options.margin.min(self.options.lease / 2))
    }

    async fn beat(&self, event: &ClaimedEvent, progress: Option<&RawValue>) -> Result<HeartbeatResponse, ClientError> {
        let body = to_json(&Heartbeat {
            worker_id: &self.options.worker_id,
            lease_id: event.lease_id,
            lease_seconds: self.options.lease.as_secs_f64(),
            progress,
        })?;
        let sent_at = Instant::now();
        let beat = self.client.call(Method::POST, &format!("/events/{}/heartbeat", event.id), Some(body)).await;
        self.outage.note(sent_at, &beat);
        beat
    }

    /// Settles an event. While the server is away it tries again: late is better than twice, and the settlement is
    /// accepted as long as nobody else has claimed the event. If the worker is aborted, it tries only for a moment.
    pub(super) async fn settle(&self, event: &ClaimedEvent, outcome: &Outcome, took: Option<Duration>) {
        tokio::select! {
            () = self.settle_in_time(event, outcome, took) => {}
            () = self.long_aborted() => {
                self.unsettled.fetch_add(1, Ordering::Relaxed);
                log::warn!(event_id = event.id; "not settled: it comes back when its lease ends");
            }
        }
    }

    async fn settle_in_time(&self, event: &ClaimedEvent, outcome: &Outcome, took: Option<Duration>) {
        let (verb, body) = self.settlement_of(event, outcome, took);
        let path = format!("/events/{}/{verb}", event.id);
        let mut pause = Pause::default();
        let mut faults = 0;
        loop {
            let sent_at = Instant::now();
            let sent = match to_json(&body) {
                Ok(body) => self.client.call::<serde_json::Value>(Method::POST, &path, Some(body)).await,
                Err(error) => Err(error),
            };
            self.outage.note(sent_at, &sent);
            let error = match sent {
                Ok(_) => return log::debug!(event_id = event.id; "{verb}"),
                // The last failure of an event is answered as a problem, and recorded.
                Err(error) if is_recorded(&error) => {
                    return log::debug!(event_id = event.id; "{verb}, for good");
                }
                Err(error) => error,
            };
            faults += usize::from(!is_outage(&error));
            if error.is_final() || faults >= MAX_FAULTS {
                return log::error!(event_id = event.id, lease_id = event.lease_id; "cannot {verb}: {error}");
            }
            match faults {
                0 => log::debug!(event_id = event.id; "cannot {verb} yet: {error}"),
                _ => log::warn!(event_id = event.id; "cannot {verb} yet: {error}"),
            }
            pause.wait(&error).await;
        }
    }

    fn settlement_of<'a>(
        &'a self,
        event: &ClaimedEvent,
        outcome: &'a Outcome,
        took: Option<Duration>,
    ) -> (&'static str, Settlement<'a>) {
        let settlement = Settlement {
            worker_id: &self.options.worker_id,
            lease_id: event.lease_id,
            execution_time_ms: took.map(|took| took.as_millis() as u64),
            ..Settlement::default()
        };
        match outcome {
            Outcome::Complete { result } => ("complete", Settlement { result: result.as_deref(), ..settlement }),
            Outcome::Fail { error, retryable } => {
                ("fail", Settlement { error_message: Some(error), retryable: Some(*retryable), ..settlement })
            }
            Outcome::Release { delay } => {
                let delay_seconds = Some(delay.as_secs_f64());
                ("release", Settlement { delay_seconds, execution_time_ms: None, ..settlement })
            }
        }
    }
}

/// Returns whether a request failed because the server, its database or a proxy in between is away for now. Other faults
/// are of this request.
fn is_outage(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } => true,
        ClientError::Refused(problem) => matches!(problem.status, 429 | 502..=504),
        ClientError::Settings(_) | ClientError::Unreadable(_) => false,
    }
}
