//! `start`, `heartbeat`, `complete`, `fail` and `release`: settlements of single events by workers.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use chrono::Utc;
use serde::Serialize;

use super::body::{self, path_id, read_json_without_query};
use super::code::Code;
use super::doors::Admitted;
use super::problem::{Problem, respond_to_repeatable};
use super::refused_settlements::SettlementAttempt;
use super::view::{LogView, Timestamp};
use crate::domain::action::Action;
use crate::domain::delivery::{PushRecord, Report};
use crate::domain::ids::{EventId, LeaseId};
use crate::domain::input::{Fields, RawFields};
use crate::domain::lease::Caller;
use crate::domain::limits;
use crate::domain::scope::Scope;
use crate::domain::seconds::Seconds;
use crate::domain::status::Status;
use crate::engine::Engine;
use crate::engine::settle::{RecordedSettlement, SettleCall, SettleOutcome, Settlement, SettlementEntry};
use crate::error::Error;

/// The namespace that a worker settles events of, and what its key allows.
type WorkerScope = (Scope, Admitted);

/// `POST /events/{id}/start`: records that the worker has started.
pub(crate) async fn start_event(
    engine: Data<Engine>,
    worker: WorkerScope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    settle_event(&engine, &worker, &request, payload, |_| Some(Settlement::Start)).await
}

/// `POST /events/{id}/heartbeat`: extends the lease.
pub(crate) async fn send_heartbeat(
    engine: Data<Engine>,
    worker: WorkerScope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    settle_event(&engine, &worker, &request, payload, |fields| {
        let lease_seconds = fields.seconds_within("lease_seconds", limits::LEASE_SECONDS).map(Seconds::as_f64);
        let progress = fields.json("progress", limits::PROGRESS_BYTES);
        Some(Settlement::Heartbeat { lease_seconds, progress })
    })
    .await
}

/// `POST /events/{id}/release`: returns the event to PENDING without counting a failure.
pub(crate) async fn release_event(
    engine: Data<Engine>,
    worker: WorkerScope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    settle_event(&engine, &worker, &request, payload, |fields| Some(read_release(fields))).await
}

/// `POST /events/{id}/complete`: makes the event COMPLETED.
pub(crate) async fn complete_event(
    engine: Data<Engine>,
    worker: WorkerScope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    settle_event(&engine, &worker, &request, payload, |fields| Some(read_complete(fields))).await
}

/// `POST /events/{id}/fail`: schedules a retry, or makes the event FAILED.
pub(crate) async fn fail_event(
    engine: Data<Engine>,
    worker: WorkerScope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    settle_event(&engine, &worker, &request, payload, |fields| Some(read_fail(fields))).await
}

async fn settle_event(
    engine: &Engine,
    (scope, admitted): &WorkerScope,
    request: &HttpRequest,
    payload: Payload,
    read: impl FnOnce(&mut RawFields<'_>) -> Option<Settlement>,
) -> Result<HttpResponse, Error> {
    let event_id: EventId = path_id(request).await?;
    let body = read_json_without_query(request, payload, body::MAX_EVENT_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let caller = read_caller(&mut fields);
    let settlement = read(&mut fields);
    let (caller, settlement) = fields.finish_with(caller.zip(settlement))?;
    // Without a lease id, a repeat may be taken for the settlement of a later claim by the same worker. A
    // heartbeat does no harm there.
    let is_repeatable = caller.lease_id.is_some() || matches!(settlement, Settlement::Heartbeat { .. });
    let tag_patterns = admitted.principal().tag_patterns.clone();
    let call = SettleCall { tag_patterns, ..SettleCall::of_event(scope.namespace, event_id, caller, settlement) };
    match settle_single(engine, scope, request, call).await {
        Err(error) if is_repeatable => Ok(respond_to_repeatable(error)),
        settled => settled.map(respond),
    }
}

async fn settle_single(
    engine: &Engine,
    scope: &Scope,
    request: &HttpRequest,
    call: SettleCall,
) -> Result<SettleOutcome, Error> {
    let attempt = SettlementAttempt {
        event_id: EventId(call.delivery.id.0),
        caller: call.caller.clone(),
        verb: call.settlement.verb(),
    };
    let began_at = Utc::now();
    let mut outcomes = engine.settle_deliveries(scope.namespace, vec![call]).await?;
    let outcome = outcomes.pop().unwrap_or_else(|| Err(Error::Internal("a settlement has no outcome".into())));
    attempt.trace(scope.namespace, began_at, &outcome).note(engine, request);
    outcome.inspect_err(|error| attempt.note(engine, scope, error))
}

fn read_caller(fields: &mut RawFields<'_>) -> Option<Caller> {
    let worker_id = fields.required("worker_id", Fields::worker_id);
    let lease_id = fields.id("lease_id");
    Some(Caller { worker_id: worker_id?, lease_id })
}

pub(crate) fn read_complete(fields: &mut RawFields<'_>) -> Settlement {
    Settlement::Complete(Report { result: fields.json("result", limits::RESULT_BYTES), ..read_report(fields) })
}

pub(crate) fn read_fail(fields: &mut RawFields<'_>) -> Settlement {
    let error_message = fields.text_or_empty("error_message", limits::ERROR_MESSAGE_CHARS);
    let seconds = fields.seconds("retry_after_seconds", Seconds::MAX_DELAY);
    Settlement::Fail {
        report: Report { error_message, ..read_report(fields) },
        retryable: fields.boolean("retryable").unwrap_or(true),
        retry_after_seconds: seconds.map(Seconds::as_f64),
    }
}

pub(crate) fn read_release(fields: &mut RawFields<'_>) -> Settlement {
    let delay = fields.seconds("delay_seconds", Seconds::MAX_DELAY).unwrap_or_default();
    Settlement::Release { delay_seconds: delay.as_f64(), reason: None, service: None }
}

fn read_report(fields: &mut RawFields<'_>) -> Report {
    Report {
        status_code: fields.integer("status_code", i32::MIN..=i32::MAX),
        execution_time_ms: fields.integer("execution_time_ms", 0..=i64::MAX),
        error_message: None,
        result: None,
        push: PushRecord::default(),
    }
}

/// A recorded settlement in a response.
#[derive(Serialize)]
pub(crate) struct RecordView<'a> {
    #[serde(flatten)]
    entry: EntryView<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_scheduled: Option<bool>,
    repeated: bool,
}

/// The log entry of a settlement, or the remaining data if the entry was pruned.
#[derive(Serialize)]
#[serde(untagged)]
enum EntryView<'a> {
    Logged(LogView<'a>),
    Pruned { event_id: EventId, worker_id: &'a str, action: &'static str, lease_id: LeaseId },
}

impl<'a> EntryView<'a> {
    fn of(entry: &'a SettlementEntry) -> Self {
        match entry {
            SettlementEntry::Logged(entry) => EntryView::Logged(LogView::of(entry)),
            SettlementEntry::Pruned(pruned) => EntryView::Pruned {
                event_id: pruned.event_id,
                worker_id: &pruned.worker_id,
                action: pruned.action.as_str(),
                lease_id: pruned.lease_id,
            },
        }
    }
}

impl<'a> RecordView<'a> {
    pub(crate) fn of(record: &'a RecordedSettlement) -> Self {
        let is_failure = record.entry.action() == Action::Failed;
        let retry_scheduled = match &record.entry {
            SettlementEntry::Logged(entry) => entry.next_retry_at.is_some(),
            SettlementEntry::Pruned(_) => !record.status.is_finished(),
        };
        RecordView {
            entry: EntryView::of(&record.entry),
            retry_scheduled: is_failure.then_some(retry_scheduled),
            repeated: record.is_repeat,
        }
    }
}

/// Returns the problem (400) of a final failure, or `None`. A repeated settlement gets a 200 with the entry.
fn final_failure(record: &RecordedSettlement) -> Option<Problem> {
    let is_final = record.entry.action() == Action::Failed && record.status == Status::Failed && !record.is_repeat;
    if !is_final {
        return None;
    }
    let is_exhausted = record.retry_count >= record.max_retries;
    let code = if is_exhausted { Code::MaxRetriesExceeded } else { Code::NotRetryable };
    Some(
        Problem::new(code, "the failure is recorded, and the event is FAILED")
            .with("retry_count", record.retry_count)
            .with("max_retries", record.max_retries),
    )
}

fn respond(settled: SettleOutcome) -> HttpResponse {
    match settled {
        SettleOutcome::Extended { lease_expires_at, cancel_requested, cancel_reason } => HttpResponse::Ok()
            .json(ExtendedView { lease_expires_at: Timestamp(lease_expires_at), cancel_requested, cancel_reason }),
        SettleOutcome::Recorded(record) => match final_failure(&record) {
            Some(problem) => problem.respond(),
            None => HttpResponse::Ok().json(RecordView::of(&record)),
        },
    }
}

/// The response to a heartbeat.
#[derive(Serialize)]
struct ExtendedView {
    lease_expires_at: Timestamp,
    cancel_requested: bool,
    cancel_reason: Option<String>,
}
