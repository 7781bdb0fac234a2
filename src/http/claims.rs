//! `/events/subscribe` and `/events/claim`: workers request events.

use std::time::Duration;

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::body::{self, read_json_without_query};
use super::claim_body;
use super::query::read_query;
use super::sliced_body::to_bytes;
use super::view::{EventView, size_of};
use crate::domain::input::{FieldValue, Fields, RawFields};
use crate::domain::limits;
use crate::engine::Engine;
use crate::engine::claim::{ClaimRequest, ClaimedBatch};
use crate::error::Error;

#[derive(Serialize)]
struct ClaimedEvents<'a> {
    events: Vec<EventView<'a>>,
}

/// `GET /events/subscribe`: claims one event, or a batch if `max` is given.
pub(crate) async fn subscribe(engine: Data<Engine>, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let max = query.integer("max", 1..=limits::BATCH);
    let worker_id = query.required("worker_id", Fields::worker_id);
    let claim = read_claim(&mut query, worker_id, max.unwrap_or(1));
    let claimed = engine.claim_deliveries(query.finish_with(claim)?).await?;
    if claimed.events().is_empty() {
        return Ok(respond_empty());
    }
    claim_body::respond(&request, claimed, |claimed| match (max, claimed.events().first()) {
        (None, Some(row)) => to_bytes(size_of(claimed.events()), &EventView::claimed(row)),
        _ => to_bytes(size_of(claimed.events()), &batch_view(claimed)),
    })
}

/// `POST /events/claim`: claims a batch. A request with the same `request_id` may be repeated.
pub(crate) async fn claim(engine: Data<Engine>, request: HttpRequest, payload: Payload) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, body::MAX_EVENT_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let worker_id = fields.required("worker_id", Fields::worker_id);
    let max = fields.integer("max", 1..=limits::BATCH);
    let request_id = fields.text("request_id", limits::NAME_CHARS);
    let claim = read_claim(&mut fields, worker_id, max.unwrap_or(1));
    let claim = claim.map(|claim| ClaimRequest { request_id, ..claim });
    let claimed = engine.claim_deliveries(fields.finish_with(claim)?).await?;
    if claimed.events().is_empty() {
        return Ok(respond_empty());
    }
    claim_body::respond(&request, claimed, |claimed| to_bytes(size_of(claimed.events()), &batch_view(claimed)))
}

/// Reads `tags`, `wait` and `lease`, which all claims have. Reads all of them even if `worker_id` is
/// invalid, because fields that are not read are reported as unknown.
pub(crate) fn read_claim<V: FieldValue>(
    fields: &mut Fields<'_, V>,
    worker_id: Option<String>,
    max: usize,
) -> Option<ClaimRequest> {
    let tags = fields.required("tags", Fields::some_tags);
    let wait = fields.integer("wait", limits::WAIT_SECONDS).unwrap_or(0);
    let lease = fields.integer("lease", limits::LEASE_SECONDS);
    Some(ClaimRequest {
        tags: tags?,
        worker_id: worker_id?,
        max,
        wait: Duration::from_secs(wait.unsigned_abs().into()),
        lease_seconds: lease.unwrap_or(limits::DEFAULT_LEASE_SECONDS),
        request_id: None,
    })
}

fn batch_view(claimed: &ClaimedBatch) -> ClaimedEvents<'_> {
    ClaimedEvents { events: claimed.events().iter().map(EventView::claimed).collect() }
}

fn respond_empty() -> HttpResponse {
    HttpResponse::NoContent().insert_header((header::CACHE_CONTROL, "no-store")).finish()
}
