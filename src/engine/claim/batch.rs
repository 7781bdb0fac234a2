//! Batched claims: one statement for all workers that ask for the same queues.

use std::collections::BTreeMap;

use crate::domain::limits;
use crate::error::Error;
use crate::store::tables::claims::{Claimed, ClaimedEvent, claim_deliveries};
use crate::store::tables::deliveries::EarliestTimes;
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::events::LARGE_PAYLOAD;

use crate::engine::batching::Answers;
use crate::engine::batching::deadline::{WithDeadline, limit_statements, too_late};
use crate::engine::claim::claimed_batch::Undo;
use crate::engine::claim::slots::Slots;
use crate::engine::claim::{CLAIM_BYTES, ClaimCall, ClaimedBatch, MAX_SCANS, SLACK, WIDE_SLACK};
use crate::engine::waiting::hub::{Queues, ScanResult};
use crate::engine::waiting::low_water_marks::{QueuePosition, QueueScan};
use crate::engine::{Engine, statement};

impl Engine {
    /// Claims for many workers: one statement for each set of queues that they ask for.
    pub(crate) async fn claim_batch(&self, calls: Vec<WithDeadline<ClaimCall>>) -> Answers<ClaimedBatch> {
        let mut groups: BTreeMap<Queues, Vec<usize>> = BTreeMap::new();
        for (index, timed) in calls.iter().enumerate() {
            groups.entry(timed.call.queues.clone()).or_default().push(index);
        }
        let mut answers: Vec<Option<Result<ClaimedBatch, Error>>> = calls.iter().map(|_| None).collect();
        for (queues, mut members) in groups {
            members.retain(|index| calls[*index].time.send());
            if members.is_empty() {
                continue;
            }
            let sent: Vec<&WithDeadline<ClaimCall>> = members.iter().map(|index| &calls[*index]).collect();
            limit_statements(&sent);
            let sent: Vec<&ClaimCall> = sent.iter().map(|timed| &timed.call).collect();
            for (index, share) in members.into_iter().zip(self.claim_for_group(&queues, &sent).await) {
                answers[index] = Some(share.map(|events| ClaimedBatch::new(self.clone(), events, Undo::AtOnce)));
            }
        }
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(too_late()))).collect()
    }

    /// Claims for workers that ask for the same queues. Returns the share of each. Runs no statement if
    /// all of them wait and an earlier batch has found the queues empty since they came.
    async fn claim_for_group(&self, queues: &Queues, calls: &[&ClaimCall]) -> Vec<Result<Vec<EventRow>, Error>> {
        let waiters: Vec<u64> = calls.iter().filter_map(|call| call.waiter).collect();
        let all_wait = waiters.len() == calls.len();
        let scan = self.hub().begin_scan(queues.clone(), waiters);
        if all_wait && self.hub().are_known_empty(queues) {
            scan.finish(&ScanResult::default());
            return calls.iter().map(|_| Ok(Vec::new())).collect();
        }
        let mut shares: Vec<Result<Vec<EventRow>, Error>> = calls.iter().map(|_| Ok(Vec::new())).collect();
        let mut result = ScanResult::default();
        let mut unserved: Vec<usize> = (0..calls.len()).collect();
        loop {
            let asking: Vec<&ClaimCall> = unserved.iter().map(|index| calls[*index]).collect();
            let claimed = match self.claim_in_reach(queues, &asking).await {
                Ok(claimed) => claimed,
                Err(error) => {
                    unserved.into_iter().for_each(|index| shares[index] = Err(error.for_another()));
                    return shares;
                }
            };
            result = ScanResult { found: result.found || !claimed.events.is_empty(), left: entries_left(&claimed) };
            let is_full = is_full(&claimed);
            for (index, share) in unserved.iter().zip(share_out(claimed, &asking)) {
                shares[*index] = Ok(share);
            }
            unserved.retain(|index| shares[*index].as_ref().is_ok_and(Vec::is_empty));
            if !is_full || unserved.is_empty() {
                scan.finish(&result);
                return shares;
            }
        }
    }

    /// Claims once. If there is work that could not be claimed, because others have locked it or it has
    /// expired and is not swept yet, reads further. The first worker is served first.
    async fn claim_in_reach(&self, queues: &Queues, calls: &[&ClaimCall]) -> Result<Claimed, Error> {
        let mut is_swept = false;
        let mut number = 0;
        loop {
            number += 1;
            let slack = if number == 1 { SLACK } else { WIDE_SLACK };
            let scan = self.low_water_marks().scan(queues);
            let claimed = statement!(self, |conn| {
                let slots = Slots::of(calls, &scan, slack);
                Ok(claim_deliveries(conn, &slots.query(self.scope(), queues)).await?)
            })?;
            self.metrics().events_claimed.inc_by(claimed.events.len() as u64);
            self.note_claim(&scan, &claimed);
            if !claimed.is_out_of_reach() || is_swept || number == MAX_SCANS {
                return Ok(claimed);
            }
            is_swept = !self.expire_deliveries().await?.more;
        }
    }

    /// Raises the low-water marks, and has the new leases watched. Call it after the commit.
    pub(crate) fn note_claim(&self, scan: &QueueScan<'_>, claimed: &Claimed) {
        for event in &claimed.events {
            let (queue, rank, seq) = &event.next;
            scan.raise(queue, QueuePosition { rank: *rank, seq: *seq });
        }
        // Leases are checked some time after the claim, and never before it.
        let look_at = claimed.events.first().map(|event| event.row.work.updated_at);
        if look_at.is_some() {
            self.database().note_success();
        }
        self.due_times().wait_for(&EarliestTimes { look_at, ..EarliestTimes::default() });
    }
}

/// Returns the number of entries left in each queue. If all entries of the slack were left, there may
/// be many more behind them: then as many workers as were served may try again.
pub(super) fn entries_left(claimed: &Claimed) -> Vec<(String, usize)> {
    let more = |entries: usize| if entries < SLACK as usize { entries } else { entries + claimed.events.len() };
    claimed.left.iter().map(|(queue, entries)| (queue.clone(), more(*entries))).collect()
}

/// Returns whether the claim may have been cut short by the size of its payloads.
fn is_full(claimed: &Claimed) -> bool {
    let bytes = |event: &ClaimedEvent| {
        let payload = event.row.event.payload.as_ref().map_or(0, |payload| payload.0.as_str().len());
        payload.max(LARGE_PAYLOAD)
    };
    !claimed.left.is_empty() && claimed.events.iter().map(bytes).sum::<usize>() + limits::PAYLOAD_BYTES > CLAIM_BYTES
}

/// Distributes the events to the workers by their slots.
fn share_out(claimed: Claimed, calls: &[&ClaimCall]) -> Vec<Vec<EventRow>> {
    let owner_of_slot: Vec<usize> =
        calls.iter().enumerate().flat_map(|(index, call)| std::iter::repeat_n(index, call.max)).collect();
    let mut shares: Vec<Vec<EventRow>> = calls.iter().map(|_| Vec::new()).collect();
    for event in claimed.events {
        shares[owner_of_slot[event.slot]].push(event.row);
    }
    shares
}
