//! Fencing: whether a caller holds the claim that it settles.
//!
//! No two claims share a `lease_id`, and each claim of a delivery has a higher one than the claim
//! before. A caller holds a claim if both its `worker_id` and its `lease_id` are those of the claim.
//! Neither a clock nor the number of the attempt counts. A caller that gives no `lease_id` means the
//! latest claim made under its `worker_id`. If that is not the delivery's latest claim and the caller
//! has settled it, [`judge`] receives it as a [`PastClaim`]; otherwise it receives `None`.

use super::{action::Action, delivery::Delivery, status::Status};
use crate::domain::ids::LeaseId;

/// A worker that says it holds a claim.
#[derive(Debug, Clone)]
pub struct Caller {
    pub worker_id: String,
    /// The claim that the caller means. `None` means the latest claim under its `worker_id`.
    pub lease_id: Option<LeaseId>,
}

impl Caller {
    /// Returns whether the caller means the delivery's latest claim and made that claim.
    pub fn made_latest_claim(&self, delivery: &Delivery) -> bool {
        delivery.worker_id.as_deref() == Some(self.worker_id.as_str())
            && self.lease_id.is_none_or(|lease_id| lease_id == delivery.lease_id)
    }
}

/// A settled claim that is no longer the latest claim of its delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastClaim {
    pub lease_id: LeaseId,
    /// The action that settled the claim.
    pub settled: Action,
}

/// The judgement of a caller's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The caller holds the claim.
    Holds,
    /// The claim was reset, but the delivery has not been claimed since.
    WasReset,
    /// The same action is already recorded under the same claim. If its content is also the same,
    /// the response is the same, and nothing is written.
    Repeats {
        /// The claim under which it was recorded.
        lease_id: LeaseId,
    },
    /// The caller may not settle the delivery.
    Refused(Refusal),
}

/// The reason why a settlement is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The delivery has never been claimed.
    NotClaimed,
    /// The lease belongs to another claim, or the delivery was reset.
    LeaseLost,
    /// The claim was already settled, by another action or with other content.
    AlreadySettled,
    /// The delivery is finished, but this claim did not finish it.
    AlreadyFinished,
}

/// Judges `action` under a claim. `made_latest` says whether the caller means the delivery's latest
/// claim. If not, `past` is the claim that it means, or `None` if it has not settled that claim.
pub fn judge(delivery: &Delivery, made_latest: bool, past: Option<PastClaim>, action: Action) -> Verdict {
    if delivery.lease_id == LeaseId::NONE {
        return Verdict::Refused(Refusal::NotClaimed);
    }
    if !made_latest {
        return judge_past(delivery, past, action);
    }
    if let Some(settled) = delivery.settled.filter(|s| s.lease_id == delivery.lease_id) {
        return judge_settled(settled.lease_id, settled.action, action);
    }
    match delivery.status {
        Status::Processing => Verdict::Holds,
        Status::Pending => Verdict::WasReset,
        Status::Completed | Status::Failed | Status::Cancelled => Verdict::Refused(Refusal::AlreadyFinished),
    }
}

fn judge_past(delivery: &Delivery, past: Option<PastClaim>, action: Action) -> Verdict {
    match past {
        Some(PastClaim { lease_id, settled }) => judge_settled(lease_id, settled, action),
        None if delivery.status.is_finished() => Verdict::Refused(Refusal::AlreadyFinished),
        None => Verdict::Refused(Refusal::LeaseLost),
    }
}

fn judge_settled(lease_id: LeaseId, settled: Action, action: Action) -> Verdict {
    if settled == action { Verdict::Repeats { lease_id } } else { Verdict::Refused(Refusal::AlreadySettled) }
}

/// Judges an action that needs a live claim: `start`, `heartbeat` or `release`.
pub fn judge_live(delivery: &Delivery, made_latest: bool, past: Option<PastClaim>, action: Action) -> Verdict {
    match judge(delivery, made_latest, past, action) {
        Verdict::WasReset => Verdict::Refused(Refusal::LeaseLost),
        verdict => verdict,
    }
}
