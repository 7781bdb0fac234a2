//! A delivery: one consumer's work on an event, and the state machine that it goes through.
//!
//! Each method is one arrow of `docs/state-machine.md`. It changes the delivery in memory and
//! hands back the [`LogLine`]s that must be stored with the change, in the same transaction.
//! Who may call it was decided before, in [`super::lease`]; what time it is comes from the
//! database.

use chrono::{DateTime, TimeDelta, Utc};

use super::{action::Action, attempt::ErrorKind, json::RawJson, status::Status};
use crate::domain::ids::{DeliveryId, EventId, LeaseId, SubscriptionId};

/// The work of one consumer on one event.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Its id; the event's own id for the event's own row.
    pub id: DeliveryId,
    /// The event.
    pub event_id: EventId,
    /// The subscription that it is pushed to; none for the event's own row.
    pub subscription_id: Option<SubscriptionId>,
    /// Where it stands.
    pub status: Status,
    /// Where it waits, while it is pending.
    pub place: Readiness,
    /// Failures so far.
    pub retry_count: i32,
    /// Attempts in all.
    pub max_retries: i32,
    /// Leases that ran out in a row without a sign of life.
    pub rescue_count: i32,
    /// The number of its latest claim, or 0: the fencing token.
    pub lease_id: LeaseId,
    /// Who claimed it last.
    pub worker_id: Option<String>,
    /// Until when, exactly while it is processing.
    pub lease_expires_at: Option<DateTime<Utc>>,
    /// When the present claim was started.
    pub started_at: Option<DateTime<Utc>>,
    /// Whether an operator wants it called off.
    pub cancel_requested: bool,
    /// Why it was, or is to be, called off, if the operator said.
    pub cancel_reason: Option<String>,
    /// Worthless after this.
    pub expires_at: Option<DateTime<Utc>>,
    /// The key behind which it queues.
    pub ordering_key: Option<String>,
    /// Whether the rest of the key waits if this one is given up.
    pub blocks_when_failed: bool,
    /// The last claim that its holder settled.
    pub settled: Option<LastSettlement>,
    /// What the worker last reported.
    pub progress: Option<RawJson>,
    /// What came out.
    pub result: Option<RawJson>,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// Where pending work waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// In `ready`: whoever asks gets it.
    Ready,
    /// For its time.
    Due(DateTime<Utc>),
    /// For its turn behind its ordering key.
    Turn,
    /// Nowhere: it is not pending.
    Nowhere,
}

/// How a claim ended by its holder's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastSettlement {
    /// The claim.
    pub lease_id: LeaseId,
    /// The word.
    pub action: Action,
}

/// One line of the audit trail, about to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The event.
    pub event_id: EventId,
    /// The delivery.
    pub delivery_id: DeliveryId,
    /// What was done.
    pub action: Action,
    /// By whom; nobody for what the server or an operator did.
    pub worker_id: Option<String>,
    /// Under which claim.
    pub lease_id: LeaseId,
    /// In which attempt.
    pub attempt: i32,
    /// The worker's status code.
    pub status_code: Option<i32>,
    /// How long the worker took.
    pub execution_time_ms: Option<i64>,
    /// What went wrong.
    pub error_message: Option<String>,
    /// Why an operator or the server did it.
    pub reason: Option<String>,
    /// When it may run again.
    pub next_retry_at: Option<DateTime<Utc>>,
    /// What is known of an attempt to push.
    pub push: PushRecord,
}

/// What is known of an attempt to push, beyond what is known of any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushRecord {
    /// What kept the receiver from answering.
    pub error_kind: Option<ErrorKind>,
    /// The beginning of what it answered.
    pub response_excerpt: Option<String>,
    /// The version of the subscription that was used.
    pub subscription_version: Option<i32>,
    /// Whether the answer was one after which no other attempt is worth making.
    pub is_terminal: bool,
}

/// What a worker says of an attempt.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Its status code.
    pub status_code: Option<i32>,
    /// How long it took.
    pub execution_time_ms: Option<i64>,
    /// What went wrong.
    pub error_message: Option<String>,
    /// What came out.
    pub result: Option<RawJson>,
    /// If it was an attempt to push.
    pub push: PushRecord,
}

/// How a failure wants to be followed up.
#[derive(Debug, Clone, Copy)]
pub enum AfterFailure {
    /// Try again after so many seconds, if attempts are left.
    RetryAfter(f64),
    /// Do not try again.
    GiveUp,
}

impl Delivery {
    /// The number of the attempt that is under way or comes next.
    pub fn attempt(&self) -> i32 {
        self.retry_count + 1
    }

    /// When it falls due, if it waits for that.
    pub fn due_at(&self) -> Option<DateTime<Utc>> {
        match self.place {
            Readiness::Due(at) => Some(at),
            Readiness::Ready | Readiness::Turn | Readiness::Nowhere => None,
        }
    }

    /// When a retry is due, as the contract shows it.
    pub fn next_retry_at(&self) -> Option<DateTime<Utc>> {
        self.due_at().filter(|_| self.lease_id > LeaseId::NONE)
    }

    /// PROCESSING, STARTED: a sign of life.
    pub fn start(&mut self, worker_id: &str, now: DateTime<Utc>) -> LogLine {
        self.started_at = Some(now);
        self.rescue_count = 0;
        self.line(Action::Started, Some(worker_id))
    }

    /// PROCESSING, lease extended: a sign of life, not logged.
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

    /// → PENDING with a retry scheduled, or FAILED, or CANCELLED where that was asked for.
    pub fn fail(
        &mut self,
        worker_id: &str,
        report: Report,
        notify_after_commit: AfterFailure,
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
        match notify_after_commit {
            AfterFailure::RetryAfter(seconds) if self.retry_count < self.max_retries => {
                self.wait_again(seconds, now);
                line.next_retry_at = Some(self.next_retry_at().unwrap_or(now));
            }
            _ => self.finish(Status::Failed),
        }
        vec![line]
    }

    /// → PENDING, no attempt spent.
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

    /// PROCESSING → PENDING by an operator's word.
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

    /// PROCESSING → PENDING because the lease ran out; FAILED after `poison_after` times in
    /// a row: something in it kills its workers.
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

    /// FAILED or CANCELLED → PENDING, counters fresh.
    pub fn retry(&mut self, reason: Option<&str>, now: DateTime<Utc>) -> LogLine {
        self.retry_count = 0;
        self.rescue_count = 0;
        self.cancel_requested = false;
        self.cancel_reason = None;
        self.wait_again(0.0, now);
        let mut line = self.line(Action::Retried, None);
        line.reason = reason.map(str::to_owned);
        line
    }

    /// PENDING → CANCELLED; a delivery in somebody's hands is only marked. The reason is kept for
    /// the line that is written when its worker lets go of it; the latest one given counts.
    pub fn cancel(&mut self, reason: Option<&str>) -> Option<LogLine> {
        if let Some(reason) = reason {
            self.cancel_reason = Some(reason.to_owned());
        }
        if self.status == Status::Processing {
            self.cancel_requested = true;
            return None;
        }
        Some(self.call_off())
    }

    /// PENDING → FAILED, its time being over.
    pub fn expire(&mut self) -> LogLine {
        self.finish(Status::Failed);
        self.last_error = Some("expired before it was claimed".into());
        self.line(Action::Expired, None)
    }

    /// PENDING → FAILED by an operator's word: no more attempts.
    pub fn give_up(&mut self, reason: Option<&str>) {
        self.finish(Status::Failed);
        self.last_error = reason.map(str::to_owned);
    }

    /// The line that goes with a push that was given up.
    pub fn dead_lettered(&self, reason: &str) -> LogLine {
        let mut line = self.line(Action::DeadLettered, None);
        line.reason = Some(reason.to_owned());
        line
    }

    /// FAILED → PENDING, counters fresh: sent again from the dead letters.
    pub fn replay(&mut self, by: Option<&str>, now: DateTime<Utc>) -> LogLine {
        let mut line = self.retry(by, now);
        line.action = Action::Replayed;
        line
    }

    /// Whether it holds, or waits for, its turn behind its key.
    pub fn is_in_order(&self) -> bool {
        let is_blocking = self.status == Status::Failed && self.blocks_when_failed;
        self.ordering_key.is_some() && (!self.status.is_finished() || is_blocking)
    }

    /// PENDING, its time has come: to `ready`, or to its turn behind its key.
    pub fn become_due(&mut self) {
        self.place = if self.ordering_key.is_some() { Readiness::Turn } else { Readiness::Ready };
    }

    fn call_off(&mut self) -> LogLine {
        self.finish(Status::Cancelled);
        let mut line = self.line(Action::Cancelled, None);
        line.reason.clone_from(&self.cancel_reason);
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
            self.place = Readiness::Due(now + TimeDelta::microseconds(micros));
        } else {
            self.become_due();
        }
    }

    fn finish(&mut self, status: Status) {
        self.status = status;
        self.place = Readiness::Nowhere;
        self.lease_expires_at = None;
        self.started_at = None;
        self.expires_at = None;
    }

    fn line(&self, action: Action, worker_id: Option<&str>) -> LogLine {
        LogLine {
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
            next_retry_at: None,
            push: PushRecord::default(),
        }
    }
}
