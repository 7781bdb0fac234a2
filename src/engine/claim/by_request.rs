//! Claims that can be repeated: the response of one that got lost is returned again.

use crate::error::Error;
use crate::store::tables::claim_requests::{Remembered, RequestKey, load_standing, lock_request, remember_claim};
use crate::store::tables::claims::{Claimed, claim_deliveries};
use crate::store::tables::event_columns::EventRow;

use crate::engine::claim::batch::entries_left;
use crate::engine::claim::claimed_batch::{RepeatedRequest, Undo};
use crate::engine::claim::slots::Slots;
use crate::engine::claim::{ClaimCall, ClaimedBatch, MAX_SCANS, SLACK, WIDE_SLACK};
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
                    Outcome::Repeated(events) => return Ok(ClaimedBatch::new(engine.clone(), events, Undo::Never)),
                    Outcome::Claimed(claimed, undo) => (claimed, undo),
                };
                engine.metrics().events_claimed.inc_by(claimed.events.len() as u64);
                engine.note_claim(&scan, &claimed);
                if !claimed.is_out_of_reach() || is_swept || number == MAX_SCANS {
                    hub_scan.finish(&ScanResult { found: !claimed.events.is_empty(), left: entries_left(&claimed) });
                    let events = claimed.events.into_iter().map(|event| event.row).collect();
                    return Ok(ClaimedBatch::new(engine.clone(), events, undo));
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
        let key = RequestKey { namespace: self.scope().namespace, worker_id: &call.worker_id, idempotency_key };
        transaction!(self, |conn| {
            let locked = lock_request(conn, key).await?;
            let standing = load_standing(conn, &self.scope(), &locked.remembered).await?;
            if !standing.is_empty() {
                return Ok(Outcome::Repeated(standing));
            }
            let slots = Slots::of(&[call], scan, slack);
            let claimed = claim_deliveries(conn, &slots.query(self.scope(), &call.queues)).await?;
            if claimed.events.is_empty() {
                return Ok(Outcome::Claimed(claimed, Undo::Never));
            }
            let given = Remembered {
                delivery_ids: claimed.events.iter().map(|event| event.delivery_id).collect(),
                lease_ids: claimed.events.iter().map(|event| event.row.work.lease_id).collect(),
            };
            remember_claim(conn, key, &given, self.now()).await?;
            let repeated = RepeatedRequest {
                worker_id: call.worker_id.clone(),
                idempotency_key: idempotency_key.to_owned(),
                number: locked.asks,
            };
            Ok(Outcome::Claimed(claimed, Undo::IfLast(repeated)))
        })
    }
}
