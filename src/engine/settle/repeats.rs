//! Repeated settlements: which claim they mean, and what an earlier call recorded.
//!
//! A settlement is recorded in up to three places: among the lines that this transaction is about to
//! write, in the event log, and on the delivery's row, which keeps the last claim that was settled, the
//! action and the result. The log knows the most and is pruned first. Once the entry is gone, the row
//! decides.

use diesel_async::AsyncPgConnection;

use crate::domain::action::Action;
use crate::domain::delivery::{Delivery, LogLine};
use crate::domain::ids::LeaseId;
use crate::domain::lease::{Caller, PastClaim};
use crate::domain::repeat::{Recorded, RecordedLine};
use crate::error::Error;
use crate::store::tables::event_log::{LogEntry, find_entry, find_latest_claim_of, find_settlement};

use crate::engine::change_set::ChangeSet;
use crate::engine::settle::{PrunedEntry, Settlement, SettlementEntry};

/// Returns the claim that a caller means and has settled, if it is not the delivery's latest.
pub(crate) async fn find_past_claim(
    conn: &mut AsyncPgConnection,
    delivery: &Delivery,
    caller: &Caller,
) -> Result<Option<PastClaim>, Error> {
    let lease_id = match caller.lease_id {
        Some(lease_id) => Some(lease_id),
        // A server names the lease of its pushes.
        None if delivery.is_push() => None,
        None => find_latest_claim_of(conn, delivery.event_key(), &caller.worker_id).await?,
    };
    let Some(lease_id) = lease_id else { return Ok(None) };
    if let Some(settlement) = find_settlement(conn, delivery, lease_id).await? {
        let is_own = settlement.worker_id == caller.worker_id;
        return Ok(is_own.then_some(PastClaim { lease_id, settled: settlement.action.0 }));
    }
    // The log entry has been pruned. The row knows who made the latest claim, but only the lease id of
    // the last claim that was settled. No other claim has that id.
    let on_row = delivery.settled.filter(|settled| settled.lease_id == lease_id && lease_id != delivery.lease_id);
    Ok(on_row.map(|settled| PastClaim { lease_id, settled: settled.action }))
}

/// The place where a settlement is recorded.
pub(crate) enum EarlierSettlement {
    /// The index of a line that this transaction is about to write.
    Line(usize),
    Entry(Box<LogEntry>),
    /// Only the delivery's row knows it.
    Row(PrunedEntry),
}

impl EarlierSettlement {
    /// Finds the record of a caller's `action` under a claim.
    pub(crate) async fn find(
        conn: &mut AsyncPgConnection,
        changes: &ChangeSet,
        delivery: &Delivery,
        caller: &Caller,
        (lease_id, action): (LeaseId, Action),
    ) -> Result<Self, Error> {
        let is_record = |line: &LogLine| line.lease_id == lease_id && line.action == action && line.worker_id.is_some();
        if let Some((index, _)) = changes.lines_of(delivery.key()).rfind(|(_, line)| is_record(line)) {
            return Ok(EarlierSettlement::Line(index));
        }
        let entry = find_entry(conn, delivery, lease_id, action).await?;
        Ok(entry.map_or_else(
            || {
                let worker_id = caller.worker_id.clone();
                EarlierSettlement::Row(PrunedEntry { event_id: delivery.event_id, worker_id, action, lease_id })
            },
            |entry| EarlierSettlement::Entry(Box::new(entry)),
        ))
    }

    /// Returns whether a settlement has the same content as the recorded one.
    pub(crate) fn has_content_of(&self, settlement: &Settlement, changes: &ChangeSet, delivery: &Delivery) -> bool {
        let line = match self {
            EarlierSettlement::Line(index) => Some(RecordedLine::from(&changes.lines()[*index])),
            EarlierSettlement::Entry(entry) => Some(RecordedLine {
                status_code: entry.status_code,
                error_message: entry.error_message.as_deref(),
                retry_scheduled: entry.next_retry_at.is_some(),
            }),
            EarlierSettlement::Row(_) => None,
        };
        let recorded = Recorded { line, result: delivery.result.as_ref() };
        match settlement {
            Settlement::Complete(report) => recorded.is_completion(report),
            Settlement::Fail { report, retryable, .. } => recorded.is_failure(report, *retryable),
            Settlement::Start | Settlement::Heartbeat { .. } | Settlement::Release { .. } => true,
        }
    }

    /// Returns the log entry, now that the lines are written.
    pub(crate) fn entry(self, entries: &[LogEntry]) -> SettlementEntry {
        match self {
            EarlierSettlement::Line(index) => SettlementEntry::Logged(entries[index].clone()),
            EarlierSettlement::Entry(entry) => SettlementEntry::Logged(*entry),
            EarlierSettlement::Row(entry) => SettlementEntry::Pruned(entry),
        }
    }
}
