//! The slots of a claim: one for each event that a worker wants.

use crate::domain::ids::NamespaceId;
use crate::store::tables::claims::{ClaimGroup, ClaimQueue};
use crate::store::tables::ready::QueueKey;

use crate::engine::claim::ClaimCall;
use crate::engine::waiting::low_water_marks::{QueuePosition, QueueScan};

/// Returns the claim of workers that ask for the same queues: which worker gets the first, the second, … event, in the
/// order of the workers, and where the scan of each queue begins and ends.
pub(super) fn claim_group<'a>(
    queues: &'a [QueueKey],
    calls: &[&'a ClaimCall],
    scan: &QueueScan<'_>,
    slack: i64,
) -> ClaimGroup<'a> {
    let slots = || calls.iter().flat_map(|call| std::iter::repeat_n(*call, call.max));
    let worker_ids: Vec<&str> = slots().map(|call| call.worker_id.as_str()).collect();
    let window = worker_ids.len() as i64 + slack;
    let queue = |(queue, mark): (&'a QueueKey, &QueuePosition)| ClaimQueue {
        name: &queue.name,
        from: (mark.rank, mark.seq),
        window,
        pushes: None,
    };
    ClaimGroup {
        namespace: calls.first().map_or(NamespaceId::DEFAULT, |call| call.namespace),
        queues: queues.iter().zip(&scan.from).map(queue).collect(),
        worker_ids,
        lease_seconds: slots().map(|call| call.lease_seconds).collect(),
    }
}
