//! `/events/subscribe` and `/events/claim`: workers asking for work.

use std::time::Duration;

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::body::{self, read_only_json};
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

/// `GET /events/subscribe`: one event, or with `max` a batch.
pub async fn subscribe(engine: Data<Engine>, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let max = query.integer("max", 1..=limits::BATCH);
    let worker_id = query.required("worker_id", Fields::worker_id);
    let claim = read_claim(&mut query, worker_id, max.unwrap_or(1));
    let claimed = engine.claim_deliveries(query.finish_with(claim)?).await?;
    if claimed.events().is_empty() {
        return Ok(nothing());
    }
    claim_body::respond(&request, claimed, |claimed| match (max, claimed.events().first()) {
        (None, Some(row)) => to_bytes(size_of(claimed.events()), &EventView::claimed(row)),
        _ => to_bytes(size_of(claimed.events()), &batch(claimed)),
    })
}

/// `POST /events/claim`: always a batch, and may be asked again by `request_id`.
pub async fn claim(engine: Data<Engine>, request: HttpRequest, payload: Payload) -> Result<HttpResponse, Error> {
    let body = read_only_json(&request, payload, body::ONE_EVENT).await?;
    let mut fields = RawFields::of_body(&body)?;
    let worker_id = fields.required("worker_id", Fields::worker_id);
    let max = fields.integer("max", 1..=limits::BATCH);
    let request_id = fields.text("request_id", limits::NAME_CHARS);
    let claim = read_claim(&mut fields, worker_id, max.unwrap_or(1));
    let claim = claim.map(|claim| ClaimRequest { request_id, ..claim });
    let claimed = engine.claim_deliveries(fields.finish_with(claim)?).await?;
    if claimed.events().is_empty() {
        return Ok(nothing());
    }
    claim_body::respond(&request, claimed, |claimed| to_bytes(size_of(claimed.events()), &batch(claimed)))
}

/// Reads `tags`, `wait` and `lease`, which all claims share; all of them, even if the worker was
/// refused, or they would count as unknown.
pub fn read_claim<V: FieldValue>(
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

fn batch(claimed: &ClaimedBatch) -> ClaimedEvents<'_> {
    ClaimedEvents { events: claimed.events().iter().map(EventView::claimed).collect() }
}

fn nothing() -> HttpResponse {
    HttpResponse::NoContent().insert_header((header::CACHE_CONTROL, "no-store")).finish()
}
