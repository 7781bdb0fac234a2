//! The slots of a claim: one for each event that a worker wants.

use crate::domain::scope::Scope;
use crate::store::tables::claims::ClaimQuery;

use crate::engine::claim::{CLAIM_BYTES, ClaimCall};
use crate::engine::waiting::low_water_marks::QueueScan;

/// Which worker gets the first, the second, … event, and where the scan of each queue begins and ends.
pub(super) struct Slots<'a> {
    worker_ids: Vec<&'a str>,
    lease_seconds: Vec<f64>,
    from: Vec<(i16, i64)>,
    windows: Vec<i64>,
}

impl<'a> Slots<'a> {
    /// Returns the slots of workers that ask for the same queues, in the order of the workers.
    pub(super) fn of(calls: &[&'a ClaimCall], scan: &QueueScan<'_>, slack: i64) -> Self {
        let slots = || calls.iter().flat_map(|call| std::iter::repeat_n(*call, call.max));
        let worker_ids: Vec<&str> = slots().map(|call| call.worker_id.as_str()).collect();
        let from: Vec<(i16, i64)> = scan.from.iter().map(|mark| (mark.rank, mark.seq)).collect();
        let windows = vec![worker_ids.len() as i64 + slack; from.len()];
        Slots { worker_ids, lease_seconds: slots().map(|call| call.lease_seconds).collect(), from, windows }
    }

    pub(super) fn query<'q>(&'q self, scope: Scope, queues: &'q [String]) -> ClaimQuery<'q> {
        ClaimQuery {
            scope,
            queues,
            from: &self.from,
            windows: &self.windows,
            worker_ids: &self.worker_ids,
            lease_seconds: &self.lease_seconds,
            queue_leases: None,
            subscriptions: None,
            max_bytes: CLAIM_BYTES as i64,
        }
    }
}
