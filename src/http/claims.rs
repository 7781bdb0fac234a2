//! `/events/subscribe` and `/events/claim`: workers request events.

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use chrono::Utc;
use futures_util::TryFutureExt as _;
use serde::Serialize;

use super::body::{self, read_json_without_query};
use super::claim_body;
use super::doors::Admitted;
use super::query::read_query;
use super::request_log::allow_wait;
use super::sliced_body::to_bytes;
use super::spans::note_claim;
use super::view::{EventView, size_of};
use crate::domain::ids::NamespaceId;
use crate::domain::input::{FieldValue, Fields, RawFields};
use crate::domain::limits;
use crate::domain::scope::Scope;
use crate::domain::seconds::Seconds;
use crate::domain::tags::Tags;
use crate::engine::Engine;
use crate::engine::claim::{ClaimRequest, ClaimedBatch};
use crate::error::Error;

#[derive(Serialize)]
struct ClaimedEvents<'a> {
    events: Vec<EventView<'a>>,
}

/// `GET /events/subscribe`: claims one event.
pub(crate) async fn claim_event(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let worker_id = query.required("worker_id", Fields::worker_id);
    let tags = query.required("tags", Fields::some_tags);
    let claim = read_claim(&mut query, worker_id, tags);
    let began_at = Utc::now();
    let claim = query.finish_with(claim)?;
    allow_wait(&request, claim.wait);
    let claimed = claim_deliveries(&engine, &admitted, scope.namespace, claim)?.await?;
    note_claim(&engine, &request, scope.namespace, began_at, claimed.events());
    if claimed.events().is_empty() {
        return Ok(HttpResponse::NoContent().insert_header((header::CACHE_CONTROL, "no-store")).finish());
    }
    claim_body::respond(&request, claimed, |claimed| {
        to_bytes(size_of(claimed.events()), &claimed.events().first().map(EventView::claimed))
    })
}

/// `POST /events/claim`: claims a batch. A request with the same `idempotency_key` may be repeated.
pub(crate) async fn claim_events(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let body = read_json_without_query(&request, payload, body::MAX_EVENT_BYTES).await?;
    let mut fields = RawFields::of_body(&body)?;
    let worker_id = fields.required("worker_id", Fields::worker_id);
    let claim = read_batch_claim(&mut fields, worker_id);
    let claim = fields.finish_with(claim)?;
    // A claim may wait for long: it must not keep the memory of its body.
    drop(body);
    let began_at = Utc::now();
    allow_wait(&request, claim.wait);
    let claimed = claim_deliveries(&engine, &admitted, scope.namespace, claim)?.await?;
    note_claim(&engine, &request, scope.namespace, began_at, claimed.events());
    claim_body::respond(&request, claimed, |claimed| {
        to_bytes(size_of(claimed.events()), &ClaimedEvents { events: claimed_views(claimed) })
    })
}

/// Claims events for a caller, who must be allowed to claim these tags. If the caller's key ends while it waits, nothing
/// is claimed any more. Not `async`: the returned future would hold the request twice, and thousands of them wait.
pub(crate) fn claim_deliveries<'a>(
    engine: &'a Engine,
    admitted: &'a Admitted,
    namespace: NamespaceId,
    claim: ClaimRequest,
) -> Result<impl Future<Output = Result<ClaimedBatch, Error>> + 'a, Error> {
    admitted.principal().check_claim(claim.tags.as_slice())?;
    let claim = ClaimRequest { tag_patterns: admitted.principal().tag_patterns.clone(), ..claim };
    let claiming = admitted.0.while_valid(engine.claim_deliveries(namespace, claim));
    Ok(claiming.map_ok(|claimed| claimed.unwrap_or_else(ClaimedBatch::empty)))
}

/// Reads the fields of a claim of several events.
pub(crate) fn read_batch_claim(fields: &mut RawFields<'_>, worker_id: Option<String>) -> Option<ClaimRequest> {
    let tags = fields.required("tags", Fields::tag_list);
    let max = fields.integer("max", 1..=limits::BATCH).unwrap_or(1);
    let idempotency_key = fields.text("idempotency_key", limits::NAME_CHARS);
    Some(ClaimRequest { max, idempotency_key, ..read_claim(fields, worker_id, tags)? })
}

/// Reads `wait_seconds` and `lease_seconds`, which all claims have. Reads them even if the other
/// parameters are invalid, because fields that are not read are reported as unknown.
fn read_claim<V: FieldValue>(
    fields: &mut Fields<'_, V>,
    worker_id: Option<String>,
    tags: Option<Tags>,
) -> Option<ClaimRequest> {
    let wait = fields.seconds_within("wait_seconds", limits::WAIT_SECONDS).unwrap_or_default();
    let lease = fields.seconds_within("lease_seconds", limits::LEASE_SECONDS);
    Some(ClaimRequest {
        tags: tags?,
        worker_id: worker_id?,
        max: 1,
        wait: wait.as_duration(),
        lease_seconds: lease.unwrap_or(Seconds::whole(limits::DEFAULT_LEASE_SECONDS)).as_f64(),
        idempotency_key: None,
        tag_patterns: None,
    })
}

/// Returns the events of a claim for its worker.
pub(crate) fn claimed_views(claimed: &ClaimedBatch) -> Vec<EventView<'_>> {
    claimed.events().iter().map(EventView::claimed).collect()
}
