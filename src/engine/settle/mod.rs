//! Settlements: workers start, extend, complete, fail and release the work they hold.
//!
//! [`Engine::settle_deliveries`] is the call. Calls of many requests are settled together by
//! [`Engine::settle_batch`], in two steps. A completion by the worker that holds the delivery takes
//! the *fast path* ([`fast_path`]): one guarded statement for all of them, unless the delivery has an
//! ordering key or several calls. Everything else is
//! *judged* ([`judged`]): the rows are locked, [`crate::domain::lease`] decides about each call
//! against the state that the calls before it left (an event may come twice in a batch), and all
//! changes are written at once. A refused call does not affect the others.

mod fast_path;
pub(crate) mod judged;
mod outcome;
pub(crate) mod repeats;

use std::sync::Arc;

use tokio::time::Instant;

use crate::domain::action::Action;
use crate::domain::actor::ServerActor;
use crate::domain::api_key::TagPatterns;
use crate::domain::delivery::Report;
use crate::domain::ids::{DeliveryKey, EventId, NamespaceId};
use crate::domain::json::RawJson;
use crate::domain::lease::Caller;
use crate::error::{Error, OutageKind};

use crate::engine::batching::deadline::{WithDeadline, answer_each, send_wanted};
use crate::engine::batching::{Answers, split};
use crate::engine::settle::judged::settle_all;
use crate::engine::{Engine, transaction, weight};

pub use outcome::{PrunedEntry, RecordedSettlement, SettleOutcome, SettlementEntry};

/// One call of one worker about one delivery.
#[derive(Debug, Clone)]
pub struct SettleCall {
    /// The delivery, in the namespace of the caller.
    pub delivery: DeliveryKey,
    pub caller: Caller,
    pub settlement: Settlement,
    /// When the request of a push ended; `None` for work that is pulled. Only the dispatcher settles
    /// pushes, and it settles nothing else. An outcome that is offered again keeps its time.
    pub push_ended_at: Option<Instant>,
    /// The tags that the caller's key allows. The event must have one of them. `None` means all.
    pub tag_patterns: Option<Arc<TagPatterns>>,
}

impl SettleCall {
    /// Returns a call about an event that a worker has pulled, without a limit on its tags.
    pub fn of_event(namespace: NamespaceId, event_id: EventId, caller: Caller, settlement: Settlement) -> Self {
        let delivery = namespace.delivery(event_id.own_delivery());
        SettleCall { delivery, caller, settlement, push_ended_at: None, tag_patterns: None }
    }
}

/// The calls of one request.
pub type SettleRequest = Arc<Vec<SettleCall>>;

/// The results of the calls of one request, in their order.
pub type SettleResults = Vec<Result<SettleOutcome, Error>>;

/// What a worker does with the delivery that it holds.
#[derive(Debug, Clone)]
pub enum Settlement {
    Start,
    /// Extends the lease.
    Heartbeat {
        /// The length of the lease from now. `None` means the default, but never shortens the lease.
        lease_seconds: Option<f64>,
        progress: Option<RawJson>,
    },
    Complete(Report),
    Fail {
        report: Report,
        /// Whether another attempt makes sense.
        retryable: bool,
        /// Replaces the wait that the backoff yields.
        retry_after_seconds: Option<f64>,
    },
    /// Returns the delivery to the queue.
    Release {
        delay_seconds: f64,
        reason: Option<String>,
        /// The service that returns it, if it is not the worker itself.
        service: Option<ServerActor>,
    },
}

impl Settlement {
    /// Returns the action that is logged. A heartbeat is not logged and counts as a start.
    fn action(&self) -> Action {
        match self {
            Settlement::Start | Settlement::Heartbeat { .. } => Action::Started,
            Settlement::Complete(_) => Action::Completed,
            Settlement::Fail { .. } => Action::Failed,
            Settlement::Release { .. } => Action::Released,
        }
    }

    /// Returns the verb of the API: the last word of its path.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Settlement::Start => "start",
            Settlement::Heartbeat { .. } => "heartbeat",
            Settlement::Complete(_) => "complete",
            Settlement::Fail { .. } => "fail",
            Settlement::Release { .. } => "release",
        }
    }

    /// Returns the size of the JSON that the worker sent along.
    fn json_bytes(&self) -> usize {
        let json = match self {
            Settlement::Complete(report) => report.result.as_ref(),
            Settlement::Heartbeat { progress, .. } => progress.as_ref(),
            Settlement::Start | Settlement::Fail { .. } | Settlement::Release { .. } => None,
        };
        json.map_or(0, |json| json.as_str().len())
    }
}

impl Engine {
    /// Settles deliveries of a namespace for a worker. Returns one result per call, in order.
    pub async fn settle_deliveries(
        &self,
        namespace: NamespaceId,
        calls: Vec<SettleCall>,
    ) -> Result<SettleResults, Error> {
        for call in &calls {
            self.worker_sightings().note(namespace, &call.caller.worker_id, None);
        }
        let weight = weight(calls.len(), calls.iter().map(|call| call.settlement.json_bytes()).sum());
        self.0.batchers.settle.call(namespace, Arc::new(calls), weight).await
    }

    /// Settles the calls of many requests together. Calls that were completed on the fast path are
    /// recorded, so a batch whose other calls the database refuses must not be run again as a whole:
    /// only those others are split.
    pub(crate) async fn settle_batch(
        &self,
        requests: Vec<WithDeadline<SettleRequest>>,
    ) -> Result<Answers<SettleResults>, Error> {
        let sent = send_wanted(&requests);
        let calls: Vec<&SettleCall> = sent.iter().flat_map(|timed| timed.call.iter()).collect();
        let completed = self.complete_held(&calls).await?;
        let is_usable = !completed.iter().flatten().any(Result::is_err);
        let others: Vec<&SettleCall> =
            calls.iter().zip(&completed).filter(|(_, done)| done.is_none()).map(|(call, _)| *call).collect();
        let judged = match is_usable {
            true => {
                split(others, &|calls: Vec<&SettleCall>| async move {
                    let (results, applied) = transaction!(self, |conn| settle_all(conn, self, &calls).await)?;
                    self.notify_after_commit(&applied);
                    Ok(results)
                })
                .await
            }
            // Nothing more is sent to a database that just failed.
            false => others.iter().map(|_| Err(unsent())).collect(),
        };
        let mut judged = judged.into_iter();
        let unanswered = || Err(Error::Internal("a call was not answered".into()));
        let mut results = completed
            .into_iter()
            .map(|done| done.or_else(|| judged.next()).unwrap_or_else(unanswered))
            .inspect(|result| {
                if let Ok(SettleOutcome::Recorded(record)) = result {
                    self.metrics().count_settlement(record.entry.action().as_str());
                    self.metrics().settlements_repeated.inc_by(u64::from(record.is_repeat));
                }
            });
        Ok(answer_each(&requests, &sent, |calls| results_of_request(results.by_ref().take(calls.len()).collect())))
    }
}

/// Returns the error of a call that was not sent, because an earlier statement of its batch failed.
fn unsent() -> Error {
    Error::outage(OutageKind::Lost, "an earlier statement of the batch failed")
}

/// Returns the results of one request, or one error if every call failed for a reason that is not its
/// own.
fn results_of_request(mut results: SettleResults) -> Result<SettleResults, Error> {
    let is_unknown = |result: &Result<SettleOutcome, Error>| matches!(result, Err(Error::OutcomeUnknown(_)));
    let has_failed = |result: &Result<SettleOutcome, Error>| {
        is_unknown(result) || matches!(result, Err(Error::Unavailable(_) | Error::Internal(_)))
    };
    if results.is_empty() || !results.iter().all(has_failed) {
        return Ok(results);
    }
    let worst = results.iter().position(is_unknown).unwrap_or(0);
    results.swap_remove(worst).map(|outcome| vec![Ok(outcome)])
}
