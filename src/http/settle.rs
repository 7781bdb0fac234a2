//! `POST /events/settle`: settles a batch of events, and claims the next batch if asked to.
//!
//! The settlements are committed first, and then the claim waits. Whatever happens to the claim, the
//! response contains the results of the settlements.

use std::time::Duration;

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use chrono::Utc;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::body::{self, read_json_without_query};
use super::claim_body;
use super::claims::{claim_deliveries, claimed_views, read_batch_claim};
use super::doors::Admitted;
use super::memory::RequestMemory;
use super::problem::{Problem, code_of, log_cause, respond_to_repeatable};
use super::refused_settlements::SettlementAttempt;
use super::request_log::allow_wait;
use super::sliced_body::to_bytes;
use super::spans::note_claim;
use super::view::{EventView, size_of};
use super::work::{RecordView, read_complete, read_fail, read_release};
use crate::domain::ids::{EventId, NamespaceId};
use crate::domain::input::{Fields, InputError, RawFields, read_items};
use crate::domain::lease::Caller;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::engine::claim::{ClaimRequest, ClaimedBatch};
use crate::engine::settle::{SettleCall, SettleOutcome};
use crate::error::Error;

/// The two halves of a request.
struct SettleBody {
    settlements: Vec<(EventId, SettleCall)>,
    claim: Option<ClaimRequest>,
}

#[derive(Serialize)]
struct SettleResponse<'a> {
    results: &'a RawValue,
    events: Vec<EventView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim_problem: Option<Map<String, Value>>,
}

/// The result of one settlement.
#[derive(Serialize)]
struct ResultView<'a> {
    event_id: EventId,
    accepted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<RecordView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Map<String, Value>>,
}

/// `POST /events/settle`: settles events of one worker, with one result for each, and claims more.
pub(crate) async fn settle_events(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, body::MAX_BATCH_BYTES).await?;
    let namespace = scope.namespace;
    let SettleBody { mut settlements, claim } = read_settle(&body, namespace)?;
    for (_, call) in &mut settlements {
        call.tag_patterns.clone_from(&admitted.principal().tag_patterns);
    }
    let share = body.into_share();
    let is_repeatable = settlements.iter().all(|(_, call)| call.caller.lease_id.is_some());
    let results = match settle(&engine, &scope, &request, settlements).await {
        Err(error) if is_repeatable => return Ok(respond_to_repeatable(error)),
        results => results?,
    };
    // A claim may wait for long: it must not keep the memory of the body.
    drop(share);
    let held = RequestMemory::of(&request)?.try_hold_results(results.get().len());
    // If too many results wait already, this claim does not: the next call of the worker, without them, may.
    let claim = claim.map(|claim| match held {
        Some(_) => claim,
        None => ClaimRequest { wait: Duration::ZERO, ..claim },
    });
    let began_at = Utc::now();
    allow_wait(&request, claim.as_ref().map_or(Duration::ZERO, |claim| claim.wait));
    let claimed = match claim.map(|claim| claim_deliveries(&engine, &admitted, namespace, claim)) {
        Some(Ok(claiming)) => claiming.await,
        Some(Err(refused)) => Err(refused),
        None => Ok(ClaimedBatch::empty()),
    };
    let (claimed, claim_problem) = match claimed {
        Ok(claimed) => {
            note_claim(&engine, &request, namespace, began_at, claimed.events());
            (claimed, None)
        }
        Err(error) => {
            log_cause(&error);
            let problem = if is_repeatable { Problem::of_repeatable(&error) } else { Problem::from(&error) };
            (ClaimedBatch::empty(), Some(problem_fields(problem)))
        }
    };
    claim_body::respond_holding(&request, claimed, held, |claimed| {
        let size = results.get().len() + size_of(claimed.events());
        to_bytes(size, &SettleResponse { results: &results, events: claimed_views(claimed), claim_problem })
    })
}

/// Settles the events and returns the results as JSON.
async fn settle(
    engine: &Engine,
    scope: &Scope,
    request: &HttpRequest,
    settlements: Vec<(EventId, SettleCall)>,
) -> Result<Box<RawValue>, Error> {
    let attempts: Vec<SettlementAttempt> = settlements.iter().map(attempt).collect();
    let calls: Vec<SettleCall> = settlements.into_iter().map(|(_, call)| call).collect();
    let namespace = scope.namespace;
    let began_at = Utc::now();
    let outcomes = if calls.is_empty() { Vec::new() } else { engine.settle_deliveries(namespace, calls).await? };
    // Settlements that fail together have the same cause: it is logged once.
    let mut failures = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    if let Some(failure) = failures.find(|error| code_of(error).status().is_server_error()) {
        log_cause(failure);
    }
    let results = attempts.iter().zip(&outcomes);
    let results: Vec<ResultView<'_>> = results.map(|(attempt, outcome)| ResultView::of(attempt, outcome)).collect();
    let json = to_raw_value(&results).map_err(|error| Error::Internal(error.to_string()));
    for (attempt, outcome) in attempts.into_iter().zip(&outcomes) {
        attempt.trace(namespace, began_at, outcome).note(engine, request);
        if let Err(error) = outcome {
            attempt.note(engine, scope, error);
        }
    }
    json
}

fn attempt((event_id, call): &(EventId, SettleCall)) -> SettlementAttempt {
    SettlementAttempt { event_id: *event_id, caller: call.caller.clone(), verb: call.settlement.verb() }
}

impl<'a> ResultView<'a> {
    fn of(attempt: &SettlementAttempt, outcome: &'a Result<SettleOutcome, Error>) -> Self {
        let is_repeatable = attempt.caller.lease_id.is_some();
        let (entry, problem) = match outcome {
            Ok(SettleOutcome::Recorded(record)) => (Some(RecordView::of(record)), None),
            // Never happens: a batch contains no heartbeats.
            Ok(SettleOutcome::Extended { .. }) => (None, None),
            Err(error) if is_repeatable => (None, Some(problem_fields(Problem::of_repeatable(error)))),
            Err(error) => (None, Some(problem_fields(Problem::from(error)))),
        };
        ResultView { event_id: attempt.event_id, accepted: outcome.is_ok(), entry, problem }
    }
}

/// Returns a problem for a place inside a response, which has a status of its own.
fn problem_fields(problem: Problem) -> Map<String, Value> {
    let mut fields = problem.into_fields();
    fields.remove("status");
    fields
}

/// Reads both halves, and reports the mistakes of both together.
fn read_settle(body: &[u8], namespace: NamespaceId) -> Result<SettleBody, InputError> {
    let mut fields = RawFields::of_body(body)?;
    let worker_id = fields.required("worker_id", Fields::worker_id);
    // If the worker's id is invalid, the request is refused, and this name is not used.
    let worker = worker_id.unwrap_or_default();
    let least = usize::from(!fields.is_given("claim"));
    let items = fields.required("settlements", |fields, name| fields.items_within(name, least));
    let settlements = items.and_then(|items| {
        let settlements = read_items("settlements", &items, |item| read_settlement(item, namespace, &worker));
        settlements.map_err(|error| fields.refuse_all(error)).ok()
    });
    let claim = fields.object("claim", |claim| read_batch_claim(claim, Some(worker.clone())));
    fields.finish_with(settlements.map(|settlements| SettleBody { settlements, claim }))
}

fn read_settlement(
    fields: &mut RawFields<'_>,
    namespace: NamespaceId,
    worker_id: &str,
) -> Option<(EventId, SettleCall)> {
    let event_id: Option<EventId> = fields.required("event_id", Fields::id);
    let lease_id = fields.id("lease_id");
    let action: Option<String> = fields.required("action", |fields, name| fields.value(name, "a string"));
    let settlement = match action.as_deref()? {
        "complete" => read_complete(fields),
        "fail" => read_fail(fields),
        "release" => read_release(fields),
        _ => {
            fields.refuse("action", "must be one of complete, fail, release");
            return None;
        }
    };
    let caller = Caller { worker_id: worker_id.to_owned(), lease_id };
    let event_id = event_id?;
    Some((event_id, SettleCall::of_event(namespace, event_id, caller, settlement)))
}
