//! `settle_deliveries`: a worker's word on the work it holds.
//!
//! Start, heartbeat, complete, fail and release are one function over many calls: the rows
//! are locked, each call is judged by [`crate::domain::lease`] against the state that the
//! calls before it left behind (the same event may come twice in one batch), and everything
//! is written at once. One caller's refusal is that caller's alone.

pub mod repeats;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use diesel_async::AsyncPgConnection;
use tokio::time::Instant;

use crate::domain::action::Action;
use crate::domain::backoff::chance;
use crate::domain::delivery::{AfterFailure, Delivery, Report};
use crate::domain::ids::{DeliveryId, EventId, LeaseId};
use crate::domain::json::RawJson;
use crate::domain::lease::{self, Caller, Refusal, Verdict};
use crate::domain::limits;
use crate::domain::status::Status;
use crate::error::{Error, OutageKind};
use crate::store::tables::completions::{Completion, complete_deliveries};
use crate::store::tables::deliveries::Loaded;
use crate::store::tables::event_log::LogEntry;

use crate::engine::batching::deadline::{WithDeadline, answer_each, send_wanted};
use crate::engine::batching::{Answers, split};
use crate::engine::change_set::{Applied, ChangeSet};
use crate::engine::settle::repeats::{EarlierSettlement, find_past_claim};
use crate::engine::{Engine, statement, transaction, weight};

/// One call of one worker about one event.
#[derive(Debug, Clone)]
pub struct SettleCall {
    pub delivery_id: DeliveryId,
    /// Who calls.
    pub caller: Caller,
    /// What they say.
    pub settlement: Settlement,
    /// When the request of a push ended, if it is the dispatcher that calls: pushes are its alone,
    /// and nothing else is. An outcome that is offered again is as old as it was.
    pub push_ended_at: Option<Instant>,
}

/// The calls of one request.
pub type SettleRequest = Arc<Vec<SettleCall>>;

/// What a worker can say.
#[derive(Debug, Clone)]
pub enum Settlement {
    /// I have begun.
    Start,
    /// I am alive; give me so much longer.
    Heartbeat {
        /// From now; left out, the default, but never less than what is left.
        lease_seconds: Option<i32>,
        /// How far I am.
        progress: Option<RawJson>,
    },
    /// I am done.
    Complete(Report),
    /// I failed.
    Fail {
        /// How.
        report: Report,
        /// Whether another try makes sense.
        retryable: bool,
        /// When, if I know better.
        retry_after_seconds: Option<f64>,
    },
    /// I give it back.
    Release {
        /// Not before so many seconds from now.
        delay_seconds: f64,
        /// Why.
        reason: Option<String>,
    },
}

impl Settlement {
    /// The line that it leaves in the log; a heartbeat leaves none and counts as a start.
    fn action(&self) -> Action {
        match self {
            Settlement::Start | Settlement::Heartbeat { .. } => Action::Started,
            Settlement::Complete(_) => Action::Completed,
            Settlement::Fail { .. } => Action::Failed,
            Settlement::Release { .. } => Action::Released,
        }
    }
}

/// What came of a call.
#[derive(Debug, Clone)]
pub enum SettleOutcome {
    /// It is on record.
    Recorded(Box<RecordedSettlement>),
    /// The lease was extended.
    Extended {
        /// Until when.
        lease_expires_at: DateTime<Utc>,
        /// Whether the worker should stop.
        cancel_requested: bool,
        /// Why, if the operator said.
        cancel_reason: Option<String>,
    },
}

/// A word on record.
#[derive(Debug, Clone)]
pub struct RecordedSettlement {
    /// Its entry in the log.
    pub entry: SettlementEntry,
    /// Whether it was there already.
    pub is_repeat: bool,
    /// Where the delivery stands after it.
    pub status: Status,
    /// Failures so far.
    pub retry_count: i32,
    /// Attempts in all.
    pub max_retries: i32,
}

/// The log entry of a settlement, or what is left of it once it has been pruned.
#[derive(Debug, Clone)]
pub enum SettlementEntry {
    /// The entry.
    Logged(LogEntry),
    /// What the delivery's row still knows. Only repeated settlements come to this.
    Pruned(PrunedEntry),
}

/// What the delivery's row knows of a settlement.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "named as in the log")]
pub struct PrunedEntry {
    pub event_id: EventId,
    pub worker_id: String,
    pub action: Action,
    pub lease_id: LeaseId,
}

impl SettlementEntry {
    /// What was said.
    pub fn action(&self) -> Action {
        match self {
            SettlementEntry::Logged(entry) => entry.action.0,
            SettlementEntry::Pruned(rest) => rest.action,
        }
    }

    /// When it may run again, as far as that is known.
    pub fn next_retry_at(&self) -> Option<DateTime<Utc>> {
        match self {
            SettlementEntry::Logged(entry) => entry.next_retry_at,
            SettlementEntry::Pruned(_) => None,
        }
    }
}

/// What is known of an answer before the log has been written.
enum Draft {
    New { line: usize, status: Status, retry_count: i32, max_retries: i32 },
    Old { on_record: EarlierSettlement, status: Status, retry_count: i32, max_retries: i32 },
    Extended { lease_expires_at: DateTime<Utc>, cancel_requested: bool, cancel_reason: Option<String> },
}

impl Engine {
    /// Takes workers at their word, each as far as it counts; one answer per call, in order.
    pub async fn settle_deliveries(&self, calls: Vec<SettleCall>) -> Result<Vec<Result<SettleOutcome, Error>>, Error> {
        for call in &calls {
            self.worker_sightings().note(&call.caller.worker_id, None);
        }
        let result_bytes = |call: &SettleCall| match &call.settlement {
            Settlement::Complete(report) => report.result.as_ref().map_or(0, |result| result.as_str().len()),
            Settlement::Heartbeat { progress, .. } => progress.as_ref().map_or(0, |progress| progress.as_str().len()),
            Settlement::Start | Settlement::Fail { .. } | Settlement::Release { .. } => 0,
        };
        let weight = weight(calls.len(), calls.iter().map(result_bytes).sum());
        self.0.batchers.settle.call(Arc::new(calls), weight).await
    }

    /// Settles the calls of many requests together.
    pub(crate) async fn run_settle_batch(
        &self,
        requests: Vec<WithDeadline<SettleRequest>>,
    ) -> Answers<Vec<Result<SettleOutcome, Error>>> {
        split(requests, &|requests: Vec<WithDeadline<SettleRequest>>| {
            let engine = self.clone();
            async move { engine.settle_requests(&requests).await }
        })
        .await
    }

    async fn settle_requests(
        &self,
        requests: &[WithDeadline<SettleRequest>],
    ) -> Result<Answers<Vec<Result<SettleOutcome, Error>>>, Error> {
        let sent = send_wanted(requests);
        let calls: Vec<&SettleCall> = sent.iter().flat_map(|timed| timed.call.iter()).collect();
        let mut answers = self.complete_held(&calls).await?;
        // Nothing more is sent to a database that cannot be used.
        let judged = match answers.iter().flatten().any(Result::is_err) {
            true => Err(Error::outage(OutageKind::Lost, "an earlier statement of the batch failed")),
            false => self.judge_unanswered(&calls, &mut answers).await,
        };
        let unanswered = match judged {
            Ok(()) => Error::Internal("a call was not answered".into()),
            Err(error) => error,
        };
        for settled in answers.iter().flatten().flatten() {
            if let SettleOutcome::Recorded(record) = settled {
                self.metrics().count_settlement(record.entry.action().as_str());
            }
        }
        let mut answers = answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(unanswered.for_another())));
        Ok(answer_each(requests, &sent, |calls| together(answers.by_ref().take(calls.len()).collect())))
    }

    /// The long way, for all that has no answer yet. If the database refuses them, their halves are
    /// judged, down to the call that is to blame. The batch itself is not split for that: what went
    /// the short way is on record, and must not be settled again.
    async fn judge_unanswered(
        &self,
        calls: &[&SettleCall],
        answers: &mut [Option<Result<SettleOutcome, Error>>],
    ) -> Result<(), Error> {
        let open: Vec<usize> = (0..calls.len()).filter(|index| answers[*index].is_none()).collect();
        let mut ahead = vec![open];
        while let Some(mut open) = ahead.pop().filter(|open| !open.is_empty()) {
            let judged: Vec<&SettleCall> = open.iter().map(|index| calls[*index]).collect();
            match transaction!(self, |conn| settle_all(conn, self, &judged).await) {
                Ok((outcomes, written)) => {
                    self.notify_after_commit(&written);
                    for (index, outcome) in open.into_iter().zip(outcomes) {
                        answers[index] = Some(outcome);
                    }
                }
                Err(error @ (Error::Internal(_) | Error::Invalid(_))) if open.len() > 1 => {
                    log::warn!(calls = open.len(); "settlements were refused and are split: {error}");
                    let second = open.split_off(open.len() / 2);
                    ahead.extend([second, open]);
                }
                Err(error @ (Error::Internal(_) | Error::Invalid(_))) => answers[open[0]] = Some(Err(error)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The short way: completions by whoever simply holds the work are one statement. What
    /// it leaves unanswered is judged.
    async fn complete_held(&self, calls: &[&SettleCall]) -> Result<Vec<Option<Result<SettleOutcome, Error>>>, Error> {
        let mut answers: Vec<Option<Result<SettleOutcome, Error>>> = calls.iter().map(|_| None).collect();
        let mut mentions: HashMap<DeliveryId, u32> = HashMap::new();
        for call in calls {
            *mentions.entry(call.delivery_id).or_default() += 1;
        }
        // Several words on one event must be heard in their order, so they are all judged.
        let plain = |call: &&SettleCall| mentions[&call.delivery_id] == 1;
        let (indices, completions): (Vec<usize>, Vec<Completion<'_>>) = calls
            .iter()
            .enumerate()
            .filter(|(_, call)| plain(call))
            .filter_map(|(index, call)| Some((index, completion(call)?)))
            .unzip();
        if completions.is_empty() {
            return Ok(answers);
        }
        let completing =
            async { statement!(self, |conn| { Ok(complete_deliveries(conn, &self.scope(), &completions).await?) }) };
        let completed = match completing.await {
            // It is not known of these alone what became of them: the others have not been sent.
            Err(error @ (Error::Unavailable(_) | Error::OutcomeUnknown(_))) => {
                indices.iter().for_each(|index| answers[*index] = Some(Err(error.for_another())));
                return Ok(answers);
            }
            completed => completed?,
        };
        if !completed.is_empty() {
            self.database().note_success();
        }
        for done in completed {
            let record = RecordedSettlement {
                entry: SettlementEntry::Logged(done.entry),
                is_repeat: false,
                status: Status::Completed,
                retry_count: done.retry_count,
                max_retries: done.max_retries,
            };
            answers[indices[done.ord as usize - 1]] = Some(Ok(SettleOutcome::Recorded(Box::new(record))));
        }
        Ok(answers)
    }
}

/// The outcomes of one request; one failure, if all of them failed for a reason that is not their own.
fn together(mut outcomes: Vec<Result<SettleOutcome, Error>>) -> Result<Vec<Result<SettleOutcome, Error>>, Error> {
    let is_unknown = |outcome: &Result<SettleOutcome, Error>| matches!(outcome, Err(Error::OutcomeUnknown(_)));
    let has_failed = |outcome: &Result<SettleOutcome, Error>| {
        is_unknown(outcome) || matches!(outcome, Err(Error::Unavailable(_) | Error::Internal(_)))
    };
    if outcomes.is_empty() || !outcomes.iter().all(has_failed) {
        return Ok(outcomes);
    }
    let worst = outcomes.iter().position(is_unknown).unwrap_or(0);
    outcomes.swap_remove(worst).map(|settled| vec![Ok(settled)])
}

fn completion(call: &SettleCall) -> Option<Completion<'_>> {
    let Settlement::Complete(report) = &call.settlement else { return None };
    Some(Completion { id: call.delivery_id, lease_id: call.caller.lease_id, worker_id: &call.caller.worker_id, report })
}

/// One transaction's worth of calls.
pub(crate) async fn settle_all(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    calls: &[&SettleCall],
) -> Result<(Vec<Result<SettleOutcome, Error>>, Applied), Error> {
    let ids: BTreeSet<DeliveryId> = calls.iter().map(|call| call.delivery_id).collect();
    let ids: Vec<DeliveryId> = ids.into_iter().collect();
    let mut changes = ChangeSet::load(conn, &engine.scope(), &ids).await?;
    let mut drafts = Vec::with_capacity(calls.len());
    for call in calls {
        drafts.push(settle_one(conn, engine, &mut changes, call).await?);
    }
    let written = changes.write(conn).await?;
    let answers = drafts.into_iter().map(|draft| draft.map(|draft| finish(draft, &written.entries))).collect();
    Ok((answers, written))
}

/// The outer error is the transaction's, the inner one the caller's own.
async fn settle_one(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    changes: &mut ChangeSet,
    call: &SettleCall,
) -> Result<Result<Draft, Error>, Error> {
    let is_its_kind = |loaded: &&Loaded| loaded.delivery.subscription_id.is_some() == call.push_ended_at.is_some();
    let Some(loaded) = changes.get(call.delivery_id).filter(is_its_kind) else {
        return Ok(Err(Error::EventNotFound(EventId(call.delivery_id.0))));
    };
    let delivery = &loaded.delivery;
    let made_latest = call.caller.made_latest_claim(delivery);
    let past = match made_latest || delivery.lease_id == LeaseId::NONE {
        true => None,
        false => find_past_claim(conn, delivery, &call.caller).await?,
    };
    let action = call.settlement.action();
    let verdict = match call.settlement {
        Settlement::Complete(_) | Settlement::Fail { .. } => lease::judge(delivery, made_latest, past, action),
        Settlement::Start | Settlement::Heartbeat { .. } | Settlement::Release { .. } => {
            lease::judge_live(delivery, made_latest, past, action)
        }
    };
    match verdict {
        Verdict::Refused(refusal) => Ok(Err(Error::Refused(refusal))),
        Verdict::Repeats { lease_id } => repeat(conn, changes, call, lease_id).await,
        Verdict::Holds if matches!(call.settlement, Settlement::Start) && delivery.started_at.is_some() => {
            repeat(conn, changes, call, delivery.lease_id).await
        }
        Verdict::Holds | Verdict::WasReset => Ok(Ok(carry_out(engine, changes, call)?)),
    }
}

/// Answers what is on record under a claim, if the call says the same.
async fn repeat(
    conn: &mut AsyncPgConnection,
    changes: &ChangeSet,
    call: &SettleCall,
    lease_id: LeaseId,
) -> Result<Result<Draft, Error>, Error> {
    let Some(Loaded { delivery, .. }) = changes.get(call.delivery_id) else {
        return Ok(Err(Error::EventNotFound(EventId(call.delivery_id.0))));
    };
    let on_record =
        EarlierSettlement::find(conn, changes, delivery, &call.caller, (lease_id, call.settlement.action())).await?;
    if !on_record.says(&call.settlement, changes, delivery) {
        return Ok(Err(Error::Refused(Refusal::AlreadySettled)));
    }
    let Delivery { status, retry_count, max_retries, .. } = *delivery;
    Ok(Ok(Draft::Old { on_record, status, retry_count, max_retries }))
}

fn carry_out(engine: &Engine, changes: &mut ChangeSet, call: &SettleCall) -> Result<Draft, Error> {
    let loaded = changes.touch(call.delivery_id).ok_or(Error::EventNotFound(EventId(call.delivery_id.0)))?;
    let now = loaded.now;
    let worker_id = call.caller.worker_id.as_str();
    let delivery = &mut loaded.delivery;
    let lines = match &call.settlement {
        Settlement::Start => vec![delivery.start(worker_id, now)],
        Settlement::Heartbeat { lease_seconds, progress } => {
            let lease_expires_at = extended_lease(delivery, *lease_seconds, now);
            delivery.heartbeat(lease_expires_at, progress.clone());
            let cancel_reason = delivery.cancel_reason.clone();
            return Ok(Draft::Extended {
                lease_expires_at,
                cancel_requested: delivery.cancel_requested,
                cancel_reason,
            });
        }
        Settlement::Complete(report) => vec![delivery.complete(worker_id, report.clone())],
        Settlement::Fail { report, retryable, retry_after_seconds } => {
            let backoff = loaded.backoff.as_ref().unwrap_or(&engine.settings().default_backoff);
            let notify_after_commit = match (retryable, retry_after_seconds) {
                (false, _) => AfterFailure::GiveUp,
                (true, Some(seconds)) => AfterFailure::RetryAfter(*seconds),
                (true, None) => AfterFailure::RetryAfter(backoff.seconds_after(delivery.retry_count + 1, chance())),
            };
            delivery.fail(worker_id, report.clone(), notify_after_commit, now)
        }
        Settlement::Release { delay_seconds, reason } => {
            delivery.release(worker_id, *delay_seconds, reason.as_deref(), now)
        }
    };
    let (status, retry_count, max_retries) = (delivery.status, delivery.retry_count, delivery.max_retries);
    let line = changes.log_all(lines);
    Ok(Draft::New { line, status, retry_count, max_retries })
}

/// A worker that names no length must not lose what it asked for when it claimed.
fn extended_lease(delivery: &Delivery, lease_seconds: Option<i32>, now: DateTime<Utc>) -> DateTime<Utc> {
    let until = now + TimeDelta::seconds(i64::from(lease_seconds.unwrap_or(limits::DEFAULT_LEASE_SECONDS)));
    match lease_seconds {
        Some(_) => until,
        None => delivery.lease_expires_at.map_or(until, |present| present.max(until)),
    }
}

fn finish(draft: Draft, entries: &[LogEntry]) -> SettleOutcome {
    match draft {
        Draft::Extended { lease_expires_at, cancel_requested, cancel_reason } => {
            SettleOutcome::Extended { lease_expires_at, cancel_requested, cancel_reason }
        }
        Draft::New { line, status, retry_count, max_retries } => {
            SettleOutcome::Recorded(Box::new(RecordedSettlement {
                entry: SettlementEntry::Logged(entries[line].clone()),
                is_repeat: false,
                status,
                retry_count,
                max_retries,
            }))
        }
        Draft::Old { on_record, status, retry_count, max_retries } => {
            SettleOutcome::Recorded(Box::new(RecordedSettlement {
                entry: on_record.entry(entries),
                is_repeat: true,
                status,
                retry_count,
                max_retries,
            }))
        }
    }
}
