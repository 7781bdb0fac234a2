//! `start`, `heartbeat`, `complete`, `fail`, `release` and `settle`: settlements by workers.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::body::{self, path_id, read_json, read_json_without_query};
use super::claim_body;
use super::claims::read_claim;
use super::code::Code;
use super::problem::Problem;
use super::query::{Query, read_query};
use super::sliced_body::to_bytes;
use super::view::{EventView, LogView, Timestamp, size_of};
use crate::domain::action::Action;
use crate::domain::delivery::{PushRecord, Report};
use crate::domain::ids::{DeliveryId, EventId, LeaseId};
use crate::domain::input::{Fields, RawFields, read_items};
use crate::domain::lease::Caller;
use crate::domain::limits;
use crate::domain::seconds::Seconds;
use crate::domain::status::Status;
use crate::engine::Engine;
use crate::engine::claim::ClaimRequest;
use crate::engine::settle::{RecordedSettlement, SettleCall, SettleOutcome, Settlement, SettlementEntry};
use crate::error::Error;

/// `POST /events/{id}/start`: records that the worker has started.
pub(crate) async fn start(engine: Data<Engine>, request: HttpRequest, payload: Payload) -> Result<HttpResponse, Error> {
    settle_event(&engine, &request, payload, |_| Some(Settlement::Start)).await
}

/// `POST /events/{id}/heartbeat`: extends the lease.
pub(crate) async fn heartbeat(
    engine: Data<Engine>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    settle_event(&engine, &request, payload, |fields| {
        let lease_seconds = fields.integer("lease", limits::LEASE_SECONDS);
        let progress = fields.json("progress", limits::PROGRESS_BYTES);
        Some(Settlement::Heartbeat { lease_seconds, progress })
    })
    .await
}

/// `POST /events/{id}/release`: returns the event to PENDING without counting a failure.
pub(crate) async fn release(
    engine: Data<Engine>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    settle_event(&engine, &request, payload, |fields| Some(read_release(fields))).await
}

/// `POST /events/{id}/complete`: makes the event COMPLETED.
pub(crate) async fn complete(
    engine: Data<Engine>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    settle_event(&engine, &request, payload, |fields| Some(read_complete(fields))).await
}

/// `POST /events/{id}/fail`: schedules a retry, or makes the event FAILED.
pub(crate) async fn fail(engine: Data<Engine>, request: HttpRequest, payload: Payload) -> Result<HttpResponse, Error> {
    settle_event(&engine, &request, payload, |fields| Some(read_fail(fields))).await
}

/// `POST /events/settle`: settles many events of one worker, with one outcome for each.
pub(crate) async fn settle(
    engine: Data<Engine>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, body::MAX_BATCH_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let worker_id = fields.required("worker_id", Fields::worker_id);
    let items = fields.required("results", Fields::items);
    let (worker_id, items) = fields.finish_with(worker_id.zip(items))?;
    let calls = read_items("results", &items, |fields| read_result(fields, &worker_id))?;
    let ids: Vec<DeliveryId> = calls.iter().map(|call| call.delivery_id).collect();
    let outcomes = engine.settle_deliveries(calls).await?;
    let results: Vec<Value> = ids.into_iter().zip(outcomes).map(|(id, outcome)| outcome_view(id, outcome)).collect();
    Ok(HttpResponse::Ok().json(json!({ "results": results })))
}

/// Settles one event. `complete` and `fail` may claim the next event in the same request.
async fn settle_event(
    engine: &Engine,
    request: &HttpRequest,
    payload: Payload,
    read: impl FnOnce(&mut RawFields<'_>) -> Option<Settlement>,
) -> Result<HttpResponse, Error> {
    let event_id: EventId = path_id(request).await?;
    let mut query = read_query(request)?;
    let body = read_json(request, payload, body::MAX_EVENT_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let caller = read_caller(&mut fields);
    let settlement = read(&mut fields);
    let (caller, settlement) = fields.finish_with(caller.zip(settlement))?;
    let may_claim_next = matches!(settlement, Settlement::Complete(_) | Settlement::Fail { .. });
    let next = if may_claim_next { read_next(&mut query, &caller.worker_id) } else { None };
    query.finish()?;
    let settled = settle_single(
        engine,
        SettleCall { delivery_id: event_id.own_delivery(), caller, settlement, push_ended_at: None },
    )
    .await?;
    match next {
        Some(claim) => respond_with_next(engine, request, settled, claim).await,
        None => Ok(respond(settled)),
    }
}

async fn settle_single(engine: &Engine, call: SettleCall) -> Result<SettleOutcome, Error> {
    let mut outcomes = engine.settle_deliveries(vec![call]).await?;
    outcomes.pop().unwrap_or_else(|| Err(Error::Internal("a settlement has no outcome".into())))
}

fn read_caller(fields: &mut RawFields<'_>) -> Option<Caller> {
    let worker_id = fields.required("worker_id", Fields::worker_id);
    let lease_id = fields.integer("lease_id", limits::LEASE_ID).map(LeaseId);
    Some(Caller { worker_id: worker_id?, lease_id })
}

/// Reads `next` and the parameters of the claim. With `next=false` they are checked but optional, so a
/// client can switch `next` off and keep its other parameters.
fn read_next(query: &mut Query, worker_id: &str) -> Option<ClaimRequest> {
    match query.boolean("next") {
        Some(true) => read_claim(query, Some(worker_id.to_owned()), 1),
        Some(false) => {
            query.some_tags("tags");
            query.integer("wait", limits::WAIT_SECONDS);
            query.integer("lease", limits::LEASE_SECONDS);
            None
        }
        None => None,
    }
}

fn read_complete(fields: &mut RawFields<'_>) -> Settlement {
    Settlement::Complete(Report { result: fields.json("result", limits::RESULT_BYTES), ..read_report(fields) })
}

fn read_fail(fields: &mut RawFields<'_>) -> Settlement {
    let error_message = fields.text_or_empty("error_message", limits::ERROR_MESSAGE_CHARS);
    let seconds = fields.seconds("retry_after_seconds", Seconds::MAX_DELAY);
    Settlement::Fail {
        report: Report { error_message, ..read_report(fields) },
        retryable: fields.boolean("retryable").unwrap_or(true),
        retry_after_seconds: seconds.map(Seconds::as_f64),
    }
}

fn read_release(fields: &mut RawFields<'_>) -> Settlement {
    let delay = fields.seconds("delay_seconds", Seconds::MAX_DELAY).unwrap_or_default();
    Settlement::Release { delay_seconds: delay.as_f64(), reason: None }
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

fn read_result(fields: &mut RawFields<'_>, worker_id: &str) -> Option<SettleCall> {
    let event_id: Option<EventId> = fields.required("event_id", Fields::id);
    let lease_id = fields.integer("lease_id", limits::LEASE_ID).map(LeaseId);
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
    Some(SettleCall { delivery_id: event_id?.own_delivery(), caller, settlement, push_ended_at: None })
}

/// A recorded settlement in a response.
#[derive(Serialize)]
struct RecordView<'a> {
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
    fn of(record: &'a RecordedSettlement) -> Self {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel_reason: Option<String>,
}

/// Claims the next event and responds with both outcomes. The status is always 200, even for a final
/// failure.
async fn respond_with_next(
    engine: &Engine,
    request: &HttpRequest,
    settled: SettleOutcome,
    claim: ClaimRequest,
) -> Result<HttpResponse, Error> {
    #[derive(Serialize)]
    struct SettledAndNext<'a> {
        settled: &'a Map<String, Value>,
        next: Option<EventView<'a>>,
    }
    let settled = settled_fields(settled);
    let claimed = engine.claim_deliveries(claim).await.map_err(Error::after_a_part)?;
    claim_body::respond(request, claimed, |claimed| {
        let next = claimed.events().first().map(EventView::claimed);
        to_bytes(size_of(claimed.events()), &SettledAndNext { settled: &settled, next })
    })
}

/// Returns the fields of one outcome. A final failure includes its code.
fn settled_fields(settled: SettleOutcome) -> Map<String, Value> {
    let fields_of = |value: Value| match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    match settled {
        // Never happens: heartbeats are neither part of a batch nor combined with a claim.
        SettleOutcome::Extended { .. } => Map::new(),
        SettleOutcome::Recorded(record) => {
            let mut view = fields_of(serde_json::to_value(RecordView::of(&record)).unwrap_or_default());
            if let Some(problem) = final_failure(&record) {
                let included = ["code", "error", "retry_count", "max_retries"];
                view.extend(problem.into_fields().into_iter().filter(|(name, _)| included.contains(&name.as_str())));
            }
            view
        }
    }
}

/// Returns one outcome of a batch: the status and the fields of the response to the single request.
fn outcome_view(id: DeliveryId, outcome: Result<SettleOutcome, Error>) -> Value {
    let (status, mut view) = match outcome {
        Ok(settled) => {
            let is_final = matches!(&settled, SettleOutcome::Recorded(record) if final_failure(record).is_some());
            (if is_final { 400 } else { 200 }, settled_fields(settled))
        }
        Err(error) => {
            let mut fields = Problem::from(&error).into_fields();
            let status = fields.remove("status").and_then(|status| status.as_u64()).unwrap_or(500);
            fields.retain(|name, _| ["code", "error", "detail"].contains(&name.as_str()));
            (status, fields)
        }
    };
    view.insert("event_id".into(), id.into());
    view.insert("status".into(), status.into());
    Value::Object(view)
}
