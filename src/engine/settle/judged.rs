//! Judged settlements: each call is decided under lock, against the state of its delivery.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use diesel_async::AsyncPgConnection;

use crate::domain::api_key::TagRefusal;
use crate::domain::backoff::chance;
use crate::domain::delivery::{AfterFailure, Delivery};
use crate::domain::ids::{DeliveryKey, EventId, LeaseId};
use crate::domain::lease::{self, Refusal, Verdict};
use crate::domain::limits;
use crate::domain::status::Status;
use crate::error::Error;
use crate::store::tables::deliveries::Loaded;
use crate::store::tables::event_log::LogEntry;

use crate::engine::Engine;
use crate::engine::change_set::{Applied, ChangeSet};
use crate::engine::settle::repeats::{EarlierSettlement, find_past_claim};
use crate::engine::settle::{
    RecordedSettlement, SettleCall, SettleOutcome, SettleResults, Settlement, SettlementEntry,
};

/// A result that lacks its log entry, because the log is not written yet.
enum Draft {
    New { line: usize, status: Status, retry_count: i32, max_retries: i32 },
    Repeated { earlier: EarlierSettlement, status: Status, retry_count: i32, max_retries: i32 },
    Extended { lease_expires_at: DateTime<Utc>, cancel_requested: bool, cancel_reason: Option<String> },
}

/// Settles calls in a transaction of the caller's.
pub(crate) async fn settle_all(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    calls: &[&SettleCall],
) -> Result<(SettleResults, Applied), Error> {
    let keys: BTreeSet<DeliveryKey> = calls.iter().map(|call| call.delivery).collect();
    let keys: Vec<DeliveryKey> = keys.into_iter().collect();
    let mut changes = ChangeSet::load_all(conn, engine.now(), &keys).await?;
    let mut drafts = Vec::with_capacity(calls.len());
    for call in calls {
        drafts.push(settle_one(conn, engine, &mut changes, call).await?);
    }
    let applied = changes.apply(conn).await?;
    let results = drafts.into_iter().map(|draft| draft.map(|draft| draft.finish(&applied.entries))).collect();
    Ok((results, applied))
}

/// Decides about one call. The outer error fails the transaction, the inner one only this call.
async fn settle_one(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    changes: &mut ChangeSet,
    call: &SettleCall,
) -> Result<Result<Draft, Error>, Error> {
    let is_push = call.push_ended_at.is_some();
    let Some(loaded) = changes.get(call.delivery).filter(|loaded| loaded.delivery.is_push() == is_push) else {
        return Ok(Err(not_found(call)));
    };
    if let Some(patterns) = &call.tag_patterns
        && !loaded.tags.iter().any(|tag| patterns.allow(tag))
    {
        return Ok(Err(Error::TagNotAllowed(TagRefusal::NoneOfEvent)));
    }
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

/// Returns the settlement that an earlier call recorded under a claim, if this call has the same
/// content.
async fn repeat(
    conn: &mut AsyncPgConnection,
    changes: &ChangeSet,
    call: &SettleCall,
    lease_id: LeaseId,
) -> Result<Result<Draft, Error>, Error> {
    let Some(Loaded { delivery, .. }) = changes.get(call.delivery) else { return Ok(Err(not_found(call))) };
    let earlier =
        EarlierSettlement::find(conn, changes, delivery, &call.caller, (lease_id, call.settlement.action())).await?;
    if !earlier.has_content_of(&call.settlement, changes, delivery) {
        return Ok(Err(Error::Refused(Refusal::AlreadySettled)));
    }
    let Delivery { status, retry_count, max_retries, .. } = *delivery;
    Ok(Ok(Draft::Repeated { earlier, status, retry_count, max_retries }))
}

/// Changes the delivery as its holder says.
fn carry_out(engine: &Engine, changes: &mut ChangeSet, call: &SettleCall) -> Result<Draft, Error> {
    let loaded = changes.change(call.delivery).ok_or_else(|| not_found(call))?;
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
            let after_failure = match (retryable, retry_after_seconds) {
                (false, _) => AfterFailure::GiveUp,
                (true, Some(seconds)) => AfterFailure::RetryAfter(*seconds),
                (true, None) => AfterFailure::RetryAfter(backoff.seconds_after(delivery.retry_count + 1, chance())),
            };
            delivery.fail(worker_id, report.clone(), after_failure, now)
        }
        Settlement::Release { delay_seconds, reason, service } => {
            let mut lines = delivery.release(worker_id, *delay_seconds, reason.as_deref(), now);
            // The first line is about the release. If another follows, the delivery was to be cancelled.
            if let (Some(service), Some(line)) = (service, lines.first_mut()) {
                line.actor = Some(service.as_str().to_owned());
            }
            lines
        }
    };
    let (status, retry_count, max_retries) = (delivery.status, delivery.retry_count, delivery.max_retries);
    let line = changes.log_all(lines);
    Ok(Draft::New { line, status, retry_count, max_retries })
}

/// Returns the new end of a lease. Without a length, a lease is not shortened: the worker may have
/// claimed it for longer than the default.
fn extended_lease(delivery: &Delivery, lease_seconds: Option<f64>, now: DateTime<Utc>) -> DateTime<Utc> {
    let seconds = lease_seconds.unwrap_or(limits::DEFAULT_LEASE_SECONDS as f64);
    let until = now + TimeDelta::microseconds((seconds * 1e6).round() as i64);
    match lease_seconds {
        Some(_) => until,
        None => delivery.lease_expires_at.map_or(until, |current| current.max(until)),
    }
}

fn not_found(call: &SettleCall) -> Error {
    Error::EventNotFound(EventId(call.delivery.id.0))
}

impl Draft {
    /// Returns the result, now that the log is written.
    fn finish(self, entries: &[LogEntry]) -> SettleOutcome {
        let recorded = |entry, is_repeat, status, retry_count, max_retries| {
            SettleOutcome::Recorded(Box::new(RecordedSettlement { entry, is_repeat, status, retry_count, max_retries }))
        };
        match self {
            Draft::Extended { lease_expires_at, cancel_requested, cancel_reason } => {
                SettleOutcome::Extended { lease_expires_at, cancel_requested, cancel_reason }
            }
            Draft::New { line, status, retry_count, max_retries } => {
                recorded(SettlementEntry::Logged(entries[line].clone()), false, status, retry_count, max_retries)
            }
            Draft::Repeated { earlier, status, retry_count, max_retries } => {
                recorded(earlier.entry(entries), true, status, retry_count, max_retries)
            }
        }
    }
}
