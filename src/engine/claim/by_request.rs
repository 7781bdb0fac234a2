//! Claims that can be repeated: the response of one that got lost is returned again.

use crate::domain::api_key::TagRefusal;
use crate::error::Error;
use crate::store::tables::claim_requests::{Remembered, RequestKey, load_standing, lock_request, remember_claim};
use crate::store::tables::claims::{ClaimQuery, Claimed, claim_deliveries};
use crate::store::tables::event_columns::EventRow;

use crate::engine::claim::batch::entries_left;
use crate::engine::claim::claimed_batch::{RepeatedRequest, Undo};
use crate::engine::claim::slots::claim_group;
use crate::engine::claim::{CLAIM_BYTES, ClaimCall, ClaimedBatch, MAX_SCANS, SLACK, WIDE_SLACK};
use crate::engine::waiting::hub::ScanResult;
use crate::engine::waiting::low_water_marks::QueueScan;
use crate::engine::{Engine, transaction};

/// What a request with a key gets.
enum Outcome {
    Claimed(Claimed, Undo),
    /// The events of an earlier call that its worker still holds.
    Repeated(Vec<EventRow>),
}

impl Engine {
    /// Claims on behalf of a request that may be repeated.
    pub(super) async fn claim_by_request(
        &self,
        call: &ClaimCall,
        idempotency_key: &str,
    ) -> Result<ClaimedBatch, Error> {
        let (engine, call, idempotency_key) = (self.clone(), call.clone(), idempotency_key.to_owned());
        self.detached(async move {
            let hub_scan = engine.hub().begin_scan(call.queues.clone(), call.waiter.into_iter().collect());
            let mut is_swept = false;
            let mut number = 0;
            loop {
                number += 1;
                let slack = if number == 1 { SLACK } else { WIDE_SLACK };
                let scan = engine.low_water_marks().scan(&call.queues);
                let (claimed, undo) = match engine.claim_or_repeat(&call, &scan, &idempotency_key, slack).await? {
                    Outcome::Repeated(events) => {
                        return Ok(ClaimedBatch::new(engine.clone(), call.namespace, events, Undo::Never));
                    }
                    Outcome::Claimed(claimed, undo) => (claimed, undo),
                };
                engine.metrics().events_claimed.inc_by(claimed.events.len() as u64);
                engine.stats().count_claimed(call.namespace, claimed.events.iter().map(|event| &event.row));
                engine.note_claim(&scan, &claimed);
                if !claimed.is_out_of_reach() || is_swept || number == MAX_SCANS {
                    hub_scan.finish(&ScanResult { found: !claimed.events.is_empty(), left: entries_left(&claimed) });
                    let events = claimed.events.into_iter().map(|event| event.row).collect();
                    return Ok(ClaimedBatch::new(engine.clone(), call.namespace, events, undo));
                }
                is_swept = !engine.expire_deliveries().await?.more;
            }
        })
        .await
    }

    async fn claim_or_repeat(
        &self,
        call: &ClaimCall,
        scan: &QueueScan<'_>,
        idempotency_key: &str,
        slack: i64,
    ) -> Result<Outcome, Error> {
        let key = RequestKey { namespace: call.namespace, worker_id: &call.worker_id, idempotency_key };
        transaction!(self, |conn| {
            let locked = lock_request(conn, key).await?;
            let standing = load_standing(conn, &self.scope_of(call.namespace), &locked.remembered).await?;
            if !standing.iter().all(|row| call.may_work_on(row)) {
                return Err(Error::TagNotAllowed(TagRefusal::NoneOfEvent));
            }
            if !standing.is_empty() {
                return Ok(Outcome::Repeated(standing));
            }
            let group = claim_group(&call.queues, &[call], scan, slack);
            let query = ClaimQuery { now: self.now(), groups: &[group], max_bytes: CLAIM_BYTES as i64 };
            let claimed = claim_deliveries(conn, &query).await?.pop().unwrap_or_default();
            if claimed.events.is_empty() {
                return Ok(Outcome::Claimed(claimed, Undo::Never));
            }
            let given = Remembered {
                delivery_ids: claimed.events.iter().map(|event| event.delivery_id).collect(),
                lease_ids: claimed.events.iter().map(|event| event.row.work.lease_id).collect(),
            };
            remember_claim(conn, key, &given, self.now()).await?;
            let repeated = RepeatedRequest {
                namespace: call.namespace,
                worker_id: call.worker_id.clone(),
                idempotency_key: idempotency_key.to_owned(),
                number: locked.asks,
            };
            Ok(Outcome::Claimed(claimed, Undo::IfLast(repeated)))
        })
    }
}

impl ClaimCall {
    /// Returns whether the caller's key allows one of the event's tags.
    fn may_work_on(&self, row: &EventRow) -> bool {
        self.tag_patterns.as_ref().is_none_or(|patterns| row.event.tags.0.iter().any(|tag| patterns.allow(tag)))
    }
}
