//! Deliveries: one consumer's work on an event, and its state machine.
//!
//! Each method is one transition of `docs/state-machine.md`. It changes the delivery in memory and
//! returns the [`LogLine`]s that must be stored in the same transaction as the change. Whether the
//! caller may make the transition is decided before, in [`super::lease`]. The current time comes from
//! the database.

use chrono::{DateTime, TimeDelta, Utc};

use super::{action::Action, attempt::ErrorKind, json::RawJson, status::Status};
use crate::domain::ids::{DeliveryId, DeliveryKey, EventId, EventKey, LeaseId, NamespaceId, SubscriptionId};

/// The work of one consumer on one event.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub namespace: NamespaceId,
    /// For the event's own row this is the id of the event.
    pub id: DeliveryId,
    pub event_id: EventId,
    /// The subscription that the event is pushed to. `None` for the event's own row.
    pub subscription_id: Option<SubscriptionId>,
    pub status: Status,
    /// What a pending delivery waits for.
    pub readiness: Readiness,
    /// The number of failures so far.
    pub retry_count: i32,
    /// The maximum number of attempts.
    pub max_retries: i32,
    /// The number of consecutive leases that expired without a `start` or a `heartbeat`.
    pub rescue_count: i32,
    /// The fencing token: the lease id of the latest claim, or 0 if there was none.
    pub lease_id: LeaseId,
    /// The worker of the latest claim.
    pub worker_id: Option<String>,
    /// The end of the lease. Set exactly while the status is `Processing`.
    pub lease_expires_at: Option<DateTime<Utc>>,
    /// The time at which the worker started the current claim.
    pub started_at: Option<DateTime<Utc>>,
    /// Whether an operator cancelled the delivery while a worker held it.
    pub cancel_requested: bool,
    /// The reason that the operator gave for the cancellation.
    pub cancel_reason: Option<String>,
    /// Who asked for the cancellation, if known.
    pub cancel_actor: Option<String>,
    /// The delivery fails if it is not claimed before this time.
    pub expires_at: Option<DateTime<Utc>>,
    /// Deliveries with the same key are processed one at a time, in order.
    pub ordering_key: Option<String>,
    /// Whether later deliveries of the key wait if this one fails permanently.
    pub blocks_when_failed: bool,
    /// The latest settlement by a worker.
    pub settled: Option<LastSettlement>,
    /// The latest progress report of the worker.
    pub progress: Option<RawJson>,
    pub result: Option<RawJson>,
    /// The error message of the latest failure.
    pub last_error: Option<String>,
}

/// What a pending delivery waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// A worker: the delivery is in `ready` and may be claimed.
    Ready,
    /// Its due time.
    Due(DateTime<Utc>),
    /// The earlier deliveries of its ordering key.
    BehindKey,
    /// Nothing: the delivery is not pending.
    NotWaiting,
}

/// How the holder of a claim settled it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastSettlement {
    pub lease_id: LeaseId,
    pub action: Action,
}

/// An entry of the event log that is about to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    pub namespace: NamespaceId,
    pub event_id: EventId,
    pub delivery_id: DeliveryId,
    pub action: Action,
    /// The worker; `None` for most actions of the server or an operator.
    pub worker_id: Option<String>,
    /// The latest claim at the time of the action.
    pub lease_id: LeaseId,
    pub attempt: i32,
    /// The status code that the worker reported.
    pub status_code: Option<i32>,
    /// The duration that the worker reported.
    pub execution_time_ms: Option<i64>,
    pub error_message: Option<String>,
    /// The reason given by the worker, the operator or the server.
    pub reason: Option<String>,
    /// Who caused it, if it was not the lease holder. See [`super::actor`].
    pub actor: Option<String>,
    /// The time of the next attempt.
    pub next_retry_at: Option<DateTime<Utc>>,
    /// Details of a push.
    pub push: PushRecord,
}

/// Details of an attempt that only a push has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushRecord {
    /// The reason why there was no response.
    pub error_kind: Option<ErrorKind>,
    /// The beginning of the response body.
    pub response_excerpt: Option<String>,
    /// The version of the subscription that the request was made with.
    pub subscription_version: Option<i32>,
    /// Whether the outcome rules out another attempt.
    pub is_terminal: bool,
}

/// A worker's report of an attempt.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub status_code: Option<i32>,
    pub execution_time_ms: Option<i64>,
    pub error_message: Option<String>,
    pub result: Option<RawJson>,
    /// Details of a push; otherwise empty.
    pub push: PushRecord,
}

/// What follows a failure.
#[derive(Debug, Clone, Copy)]
pub enum AfterFailure {
    /// Retry after this many seconds, if attempts are left.
    RetryAfter(f64),
    /// Do not retry.
    GiveUp,
}

impl Delivery {
    pub fn key(&self) -> DeliveryKey {
        self.namespace.delivery(self.id)
    }

    pub fn event_key(&self) -> EventKey {
        self.namespace.event(self.event_id)
    }

    /// Returns whether the event is pushed to a subscription, and not pulled by workers.
    pub fn is_push(&self) -> bool {
        self.subscription_id.is_some()
    }

    /// Returns the number of the current or next attempt, starting at 1.
    pub fn attempt(&self) -> i32 {
        self.retry_count + 1
    }

    /// Returns the due time, or `None` if the delivery does not wait for one.
    pub fn due_at(&self) -> Option<DateTime<Utc>> {
        match self.readiness {
            Readiness::Due(at) => Some(at),
            Readiness::Ready | Readiness::BehindKey | Readiness::NotWaiting => None,
        }
    }

    /// Returns the due time of a retry, as shown in the API. A delivery that was never claimed has none.
    pub fn next_retry_at(&self) -> Option<DateTime<Utc>> {
        self.due_at().filter(|_| self.lease_id > LeaseId::NONE)
    }

    /// PROCESSING → PROCESSING. Records that the worker started, which shows that it is alive.
    pub fn start(&mut self, worker_id: &str, now: DateTime<Utc>) -> LogLine {
        self.started_at = Some(now);
        self.rescue_count = 0;
        self.line(Action::Started, Some(worker_id))
    }

    /// PROCESSING → PROCESSING. Extends the lease and records that the worker is alive. Not logged.
    pub fn heartbeat(&mut self, lease_until: DateTime<Utc>, progress: Option<RawJson>) {
        self.lease_expires_at = Some(lease_until);
        self.rescue_count = 0;
        if progress.is_some() {
            self.progress = progress;
        }
    }

    /// → COMPLETED.
    pub fn complete(&mut self, worker_id: &str, report: Report) -> LogLine {
        let mut line = self.line(Action::Completed, Some(worker_id));
        line.status_code = report.status_code;
        line.execution_time_ms = report.execution_time_ms;
        line.push = report.push;
        self.settle(Action::Completed);
        self.finish(Status::Completed);
        self.result = report.result;
        line
    }

    /// → PENDING with a retry scheduled, FAILED if there is no retry, or CANCELLED if an operator
    /// requested that.
    pub fn fail(
        &mut self,
        worker_id: &str,
        report: Report,
        after_failure: AfterFailure,
        now: DateTime<Utc>,
    ) -> Vec<LogLine> {
        let mut line = self.line(Action::Failed, Some(worker_id));
        line.status_code = report.status_code;
        line.execution_time_ms = report.execution_time_ms;
        line.error_message.clone_from(&report.error_message);
        line.push = report.push;
        self.settle(Action::Failed);
        self.retry_count = (self.retry_count + 1).min(self.max_retries);
        self.last_error = report.error_message;
        self.rescue_count = 0;
        if self.cancel_requested {
            return vec![line, self.call_off()];
        }
        match after_failure {
            AfterFailure::RetryAfter(seconds) if self.retry_count < self.max_retries => {
                self.wait_again(seconds, now);
                line.next_retry_at = Some(self.next_retry_at().unwrap_or(now));
            }
            _ => self.finish(Status::Failed),
        }
        vec![line]
    }

    /// → PENDING without spending an attempt, or CANCELLED if an operator requested that.
    pub fn release(
        &mut self,
        worker_id: &str,
        delay_seconds: f64,
        reason: Option<&str>,
        now: DateTime<Utc>,
    ) -> Vec<LogLine> {
        let mut line = self.line(Action::Released, Some(worker_id));
        line.reason = reason.map(str::to_owned);
        self.settle(Action::Released);
        self.rescue_count = 0;
        if self.cancel_requested {
            return vec![line, self.call_off()];
        }
        self.wait_again(delay_seconds, now);
        line.next_retry_at = self.next_retry_at();
        vec![line]
    }

    /// PROCESSING → PENDING, or CANCELLED if an operator requested that. Takes the delivery back from
    /// its worker.
    pub fn reset(&mut self, reason: &str, now: DateTime<Utc>) -> Vec<LogLine> {
        let mut line = self.line(Action::Reset, None);
        line.worker_id.clone_from(&self.worker_id);
        line.reason = Some(reason.to_owned());
        if self.cancel_requested {
            return vec![line, self.call_off()];
        }
        self.wait_again(0.0, now);
        vec![line]
    }

    /// PROCESSING → PENDING because the lease expired. FAILED after `poison_after` times in a row,
    /// because the event probably kills its workers.
    pub fn rescue(&mut self, poison_after: i32, now: DateTime<Utc>) -> Vec<LogLine> {
        self.rescue_count += 1;
        let mut lines = self.reset("lease_expired", now);
        if self.status == Status::Pending && self.rescue_count >= poison_after {
            let message = format!("poison: {} leases ran out in a row with no sign of life", self.rescue_count);
            self.finish(Status::Failed);
            let mut line = self.line(Action::Failed, None);
            line.reason = Some("poison".into());
            line.error_message = Some(message.clone());
            self.last_error = Some(message);
            lines.push(line);
        }
        lines
    }

    /// FAILED or CANCELLED → PENDING, with its counters reset.
    pub fn retry(&mut self, reason: Option<&str>, now: DateTime<Utc>) -> LogLine {
        self.retry_count = 0;
        self.rescue_count = 0;
        self.cancel_requested = false;
        self.cancel_reason = None;
        self.cancel_actor = None;
        self.wait_again(0.0, now);
        let mut line = self.line(Action::Retried, None);
        line.reason = reason.map(str::to_owned);
        line
    }

    /// PENDING → CANCELLED. If a worker holds the delivery, only a request is recorded, and the
    /// delivery is cancelled when the worker fails or releases it or loses its lease. The reason and the
    /// actor are kept for the log entry that is written then. A later request replaces them if it has a reason.
    pub fn cancel(&mut self, reason: Option<&str>, actor: Option<&str>) -> Option<LogLine> {
        if reason.is_some() || !self.cancel_requested {
            self.cancel_reason = reason.map(str::to_owned);
            self.cancel_actor = actor.map(str::to_owned);
        }
        if self.status == Status::Processing {
            self.cancel_requested = true;
            return None;
        }
        Some(self.call_off())
    }

    /// PENDING → FAILED because `expires_at` has passed.
    pub fn expire(&mut self) -> LogLine {
        self.finish(Status::Failed);
        self.last_error = Some("expired before it was claimed".into());
        self.line(Action::Expired, None)
    }

    /// PENDING → FAILED by an operator, without further attempts.
    pub fn give_up(&mut self, reason: Option<&str>) {
        self.finish(Status::Failed);
        self.last_error = reason.map(str::to_owned);
    }

    /// Returns the log entry of a push that becomes a dead letter.
    pub fn dead_lettered(&self, reason: &str) -> LogLine {
        let mut line = self.line(Action::DeadLettered, None);
        line.reason = Some(reason.to_owned());
        line
    }

    /// FAILED → PENDING, with its counters reset: a dead letter is replayed.
    pub fn replay(&mut self, reason: Option<&str>, now: DateTime<Utc>) -> LogLine {
        let mut line = self.retry(reason, now);
        line.action = Action::Replayed;
        line
    }

    /// Returns whether the delivery takes part in the order of its key: it is the head of the key or
    /// waits behind it.
    pub fn is_in_order(&self) -> bool {
        let is_blocking = self.status == Status::Failed && self.blocks_when_failed;
        self.ordering_key.is_some() && (!self.status.is_finished() || is_blocking)
    }

    /// PENDING → PENDING. Makes a due delivery claimable, or lets it wait behind the earlier deliveries
    /// of its key.
    pub fn become_due(&mut self) {
        self.readiness = if self.ordering_key.is_some() { Readiness::BehindKey } else { Readiness::Ready };
    }

    fn call_off(&mut self) -> LogLine {
        self.finish(Status::Cancelled);
        let mut line = self.line(Action::Cancelled, None);
        line.reason.clone_from(&self.cancel_reason);
        line.actor.clone_from(&self.cancel_actor);
        line
    }

    fn settle(&mut self, action: Action) {
        self.settled = Some(LastSettlement { lease_id: self.lease_id, action });
    }

    fn wait_again(&mut self, seconds: f64, now: DateTime<Utc>) {
        self.status = Status::Pending;
        self.lease_expires_at = None;
        self.started_at = None;
        if seconds > 0.0 {
            let micros = (seconds * 1e6).round() as i64;
            self.readiness = Readiness::Due(now + TimeDelta::microseconds(micros));
        } else {
            self.become_due();
        }
    }

    fn finish(&mut self, status: Status) {
        self.status = status;
        self.readiness = Readiness::NotWaiting;
        self.lease_expires_at = None;
        self.started_at = None;
        self.expires_at = None;
    }

    fn line(&self, action: Action, worker_id: Option<&str>) -> LogLine {
        LogLine {
            namespace: self.namespace,
            event_id: self.event_id,
            delivery_id: self.id,
            action,
            worker_id: worker_id.map(str::to_owned),
            lease_id: self.lease_id,
            attempt: self.attempt(),
            status_code: None,
            execution_time_ms: None,
            error_message: None,
            reason: None,
            actor: None,
            next_retry_at: None,
            push: PushRecord::default(),
        }
    }
}
