//! Fencing: does this caller hold the claim it speaks of?
//!
//! No two claims share a `lease_id`, and each claim of a delivery has a higher one than the
//! claim before. A caller holds a claim if both its `worker_id` and its `lease_id` are that
//! claim's; neither a clock nor the number of the attempt counts. A caller that gives no
//! `lease_id` means the latest claim made under its `worker_id`. Where the claim meant is not the
//! delivery's latest one, [`judge`] is told of it as a [`PastClaim`].

use super::{action::Action, delivery::Delivery, status::Status};
use crate::domain::ids::LeaseId;

/// Somebody who says that they hold a claim.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who they say they are.
    pub worker_id: String,
    /// Which claim they mean, if they say.
    pub lease_id: Option<LeaseId>,
}

impl Caller {
    /// Returns whether the caller means the delivery's latest claim, and made it.
    pub fn made_latest_claim(&self, delivery: &Delivery) -> bool {
        delivery.worker_id.as_deref() == Some(self.worker_id.as_str())
            && self.lease_id.is_none_or(|lease_id| lease_id == delivery.lease_id)
    }
}

/// A claim that is no longer the latest, and that its holder settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastClaim {
    /// Its number.
    pub lease_id: LeaseId,
    /// How.
    pub settled: Action,
}

/// What the caller's claim allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The claim stands.
    Holds,
    /// The claim was taken back, but nobody has claimed the work since.
    WasReset,
    /// The same action was already recorded under the same claim. If its content is the same,
    /// too, the answer is the same, and nothing is written.
    Repeats {
        /// The claim under which it was recorded.
        lease_id: LeaseId,
    },
    /// Not this caller's to decide.
    Refused(Refusal),
}

/// Why a caller's word does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody has claimed it yet.
    NotClaimed,
    /// Somebody else holds it, or has claimed it since.
    LeaseLost,
    /// The claim was already settled, by another action or with other content.
    AlreadySettled,
    /// It was finished, and not by this claim.
    AlreadyFinished,
}

/// Judges `action` under a claim. `past` describes the claim meant where that is not the
/// delivery's latest; `None` with `made_latest == false` says that the caller has not settled one.
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

/// Judges what needs a live claim: `start`, `heartbeat` and `release`.
pub fn judge_live(delivery: &Delivery, made_latest: bool, past: Option<PastClaim>, action: Action) -> Verdict {
    match judge(delivery, made_latest, past, action) {
        Verdict::WasReset => Verdict::Refused(Refusal::LeaseLost),
        verdict => verdict,
    }
}
