//! Fencing: does this caller hold the claim it speaks of?
//!
//! No two claims share a `lease_id`, and each claim of a delivery has a higher one than the
//! claim before. Only that number counts, never a clock and never the attempt. A caller who does not know its `lease_id` is taken to mean
//! the latest claim made under its `worker_id`; whoever asks resolves that first, and hands
//! [`judge`] a [`PastClaim`] where the claim meant is not the latest one.

use super::{action::Action, delivery::Delivery, status::Status};

/// Somebody who says that they hold a claim.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who they say they are.
    pub worker_id: String,
    /// Which claim they mean, if they say.
    pub lease_id: Option<i64>,
}

/// A claim that is no longer the latest: how it ended by its holder's word, if it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastClaim {
    /// Its number.
    pub lease_id: i64,
    /// What its holder said in the end.
    pub settled: Option<Action>,
}

/// What the caller's claim allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The claim stands.
    Holds,
    /// The claim was taken back, but nobody has claimed the work since.
    WasReset,
    /// The same was already said under the same claim: answer the same, write nothing.
    Repeats {
        /// The claim under which it was said.
        lease_id: i64,
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
    /// The claim was already settled, in another way.
    AlreadySettled,
    /// It was finished, and not by this claim.
    AlreadyFinished,
}

/// Judges `action` under a claim. `past` describes the claim meant where that is not the
/// delivery's latest; `None` with `means_latest == false` says that the caller never had one.
pub fn judge(delivery: &Delivery, means_latest: bool, past: Option<PastClaim>, action: Action) -> Verdict {
    if delivery.lease_id == 0 {
        return Verdict::Refused(Refusal::NotClaimed);
    }
    if !means_latest {
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
        Some(PastClaim { lease_id, settled: Some(settled) }) => judge_settled(lease_id, settled, action),
        _ if delivery.status.is_finished() => Verdict::Refused(Refusal::AlreadyFinished),
        _ => Verdict::Refused(Refusal::LeaseLost),
    }
}

fn judge_settled(lease_id: i64, settled: Action, action: Action) -> Verdict {
    if settled == action { Verdict::Repeats { lease_id } } else { Verdict::Refused(Refusal::AlreadySettled) }
}

/// Judges what needs a live claim: `start`, `heartbeat` and `release`.
pub fn judge_live(delivery: &Delivery, means_latest: bool, past: Option<PastClaim>, action: Action) -> Verdict {
    match judge(delivery, means_latest, past, action) {
        Verdict::WasReset => Verdict::Refused(Refusal::LeaseLost),
        verdict => verdict,
    }
}
