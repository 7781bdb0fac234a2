//! Settlements that are sent again: which claim they mean, and what is on record of the first.
//!
//! A settlement is on record in up to three places: among the lines that this transaction is
//! about to write, in the log, and on the delivery's row, which remembers the last claim that was
//! settled, how, and the result. The log has the most to say, and is pruned first: once the entry
//! is gone, the row answers.

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

/// Finds the claim that a caller means and has settled, where it is not the delivery's latest.
pub(crate) async fn find_past_claim(
    conn: &mut AsyncPgConnection,
    delivery: &Delivery,
    caller: &Caller,
) -> Result<Option<PastClaim>, Error> {
    let (event_id, id) = (delivery.event_id, delivery.id);
    let lease_id = match caller.lease_id {
        Some(lease_id) => Some(lease_id),
        None => find_latest_claim_of(conn, event_id, id, &caller.worker_id).await?,
    };
    let Some(lease_id) = lease_id else { return Ok(None) };
    if let Some(settlement) = find_settlement(conn, event_id, id, lease_id).await? {
        let is_own = settlement.worker_id == caller.worker_id;
        return Ok(is_own.then_some(PastClaim { lease_id, settled: settlement.action }));
    }
    // The log entry has been pruned. The row knows who made the latest claim, and of the last one
    // that was settled only its number, which no other claim has.
    let of_row = delivery.settled.filter(|settled| settled.lease_id == lease_id && lease_id != delivery.lease_id);
    Ok(of_row.map(|settled| PastClaim { lease_id, settled: settled.action }))
}

/// Where a settlement is on record.
pub(crate) enum EarlierSettlement {
    /// Among the lines that are about to be written, by index.
    Line(usize),
    /// In the log.
    Entry(Box<LogEntry>),
    /// On the delivery's row alone.
    Row(PrunedEntry),
}

impl EarlierSettlement {
    /// Finds the record of a caller's `action` under a claim.
    pub async fn find(
        conn: &mut AsyncPgConnection,
        changes: &ChangeSet,
        delivery: &Delivery,
        caller: &Caller,
        (lease_id, action): (LeaseId, Action),
    ) -> Result<Self, Error> {
        let is_record = |line: &LogLine| line.lease_id == lease_id && line.action == action && line.worker_id.is_some();
        if let Some((index, _)) = changes.lines_of(delivery.id).rfind(|(_, line)| is_record(line)) {
            return Ok(EarlierSettlement::Line(index));
        }
        let entry = find_entry(conn, delivery.event_id, delivery.id, lease_id, action).await?;
        Ok(entry.map_or_else(
            || {
                let worker_id = caller.worker_id.clone();
                EarlierSettlement::Row(PrunedEntry { event_id: delivery.event_id, worker_id, action, lease_id })
            },
            |entry| EarlierSettlement::Entry(Box::new(entry)),
        ))
    }

    /// Returns whether a settlement has the content of the one on record.
    pub fn says(&self, settlement: &Settlement, changes: &ChangeSet, delivery: &Delivery) -> bool {
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

    /// The entry, now that the lines are written.
    pub fn entry(self, written: &[LogEntry]) -> SettlementEntry {
        match self {
            EarlierSettlement::Line(index) => SettlementEntry::Logged(written[index].clone()),
            EarlierSettlement::Entry(entry) => SettlementEntry::Logged(*entry),
            EarlierSettlement::Row(rest) => SettlementEntry::Pruned(rest),
        }
    }
}
