//! Batched claims: one statement for the workers of many namespaces.
//!
//! Workers of a namespace that ask for the same queues are a *group*. One statement serves a group of each
//! namespace: a *wave*. Two groups of one namespace are in different waves, because an event may have tags of both and
//! must not be claimed twice. So 1,000 namespaces with a few workers each cost as many statements as one
//! namespace.
//!
//! A group that found only entries which it could not claim, or that was cut short by the size of the payloads of all
//! groups, takes part in the next statement again, together with the other groups to which that happened.

use std::collections::{BTreeMap, HashMap};

use crate::domain::ids::NamespaceId;
use crate::domain::limits;
use crate::error::Error;
use crate::store::tables::claims::{ClaimGroup, ClaimQuery, Claimed, ClaimedEvent, claim_deliveries};
use crate::store::tables::deliveries::EarliestTimes;
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::events::LARGE_PAYLOAD;
use crate::store::tables::ready::QueueKey;

use crate::engine::batching::Answers;
use crate::engine::batching::deadline::{WithDeadline, limit_statements, too_late};
use crate::engine::claim::claimed_batch::Undo;
use crate::engine::claim::slots::claim_group;
use crate::engine::claim::{CLAIM_BYTES, ClaimCall, ClaimedBatch, MAX_SCANS, SLACK, WIDE_SLACK};
use crate::engine::waiting::hub::{ClaimScan, Queues, ScanResult};
use crate::engine::waiting::low_water_marks::{QueuePosition, QueueScan};
use crate::engine::{Engine, statement};

/// The workers that ask for the same queues, while they are served.
struct GroupScan<'a> {
    queues: Queues,
    calls: Vec<&'a ClaimCall>,
    /// The index of each call in the batch.
    members: Vec<usize>,
    /// The scan of the hub. `None` once it has ended.
    hub_scan: Option<ClaimScan<'a>>,
    shares: Vec<Result<Vec<EventRow>, Error>>,
    /// The calls that have no share yet, as indices in `calls`.
    unserved: Vec<usize>,
    has_found: bool,
    /// The number of statements since the group last found something that it could claim.
    scans: usize,
    is_swept: bool,
}

/// What a group does after a statement.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Done,
    /// It takes part in the next statement.
    Again,
    /// So it does, after expired entries were swept, and reads further.
    Sweep,
}

impl Engine {
    /// Claims for many workers, in as few statements as possible.
    pub(crate) async fn claim_batch(&self, calls: Vec<WithDeadline<ClaimCall>>) -> Answers<ClaimedBatch> {
        let mut answers: Vec<Option<Result<ClaimedBatch, Error>>> = calls.iter().map(|_| None).collect();
        for wave in waves(&calls) {
            let mut groups: Vec<GroupScan<'_>> = Vec::new();
            let mut sent: Vec<&WithDeadline<ClaimCall>> = Vec::new();
            for (queues, mut members) in wave {
                members.retain(|index| calls[*index].time.send());
                sent.extend(members.iter().map(|index| &calls[*index]));
                groups.extend(GroupScan::begin(self, queues, members, &calls));
            }
            limit_statements(&sent);
            self.claim_for_groups(&mut groups).await;
            for group in groups {
                for (index, share) in group.members.iter().zip(group.shares) {
                    let batch =
                        |events| ClaimedBatch::new(self.clone(), calls[*index].call.namespace, events, Undo::AtOnce);
                    answers[*index] = Some(share.map(batch));
                }
            }
        }
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(too_late()))).collect()
    }

    /// Claims until every group is done.
    async fn claim_for_groups(&self, groups: &mut [GroupScan<'_>]) {
        let mut active: Vec<&mut GroupScan<'_>> = groups.iter_mut().filter(|group| group.hub_scan.is_some()).collect();
        while !active.is_empty() {
            match self.claim_in_one_statement(&active).await {
                Ok(claimed) => {
                    let bytes: usize = claimed.iter().flat_map(|claimed| &claimed.events).map(payload_bytes).sum();
                    let is_full = bytes + limits::PAYLOAD_BYTES > CLAIM_BYTES;
                    let taken = active.into_iter().zip(claimed);
                    let after = taken.map(|(group, claimed)| {
                        let next = group.take(claimed, is_full);
                        (group, next)
                    });
                    active = self.sweep_for(after.collect()).await;
                }
                // A group that the database refuses must not fail the others.
                Err(Error::Internal(cause)) if active.len() > 1 => {
                    log::warn!(groups = active.len(); "a claim was refused and is split: {cause}");
                    for group in active {
                        Box::pin(self.claim_for_groups(std::slice::from_mut(group))).await;
                    }
                    return;
                }
                Err(error) => return active.into_iter().for_each(|group| group.fail(&error)),
            }
        }
    }

    /// Sweeps expired deliveries if a group wants that. Returns the groups that take part in the next statement.
    async fn sweep_for<'g, 'a>(&self, groups: Vec<(&'g mut GroupScan<'a>, Next)>) -> Vec<&'g mut GroupScan<'a>> {
        let swept = match groups.iter().any(|(_, next)| *next == Next::Sweep) {
            true => self.expire_deliveries().await,
            false => {
                return groups.into_iter().filter(|(_, next)| *next != Next::Done).map(|(group, _)| group).collect();
            }
        };
        let mut active = Vec::with_capacity(groups.len());
        for (group, next) in groups {
            match (next, &swept) {
                (Next::Done, _) => continue,
                (Next::Again, _) => {}
                (Next::Sweep, Ok(outcome)) => group.is_swept = !outcome.more,
                (Next::Sweep, Err(error)) => {
                    group.fail(error);
                    continue;
                }
            }
            active.push(group);
        }
        active
    }

    /// Claims once for each group. The first worker of a group is served first.
    async fn claim_in_one_statement(&self, groups: &[&mut GroupScan<'_>]) -> Result<Vec<Claimed>, Error> {
        let scans: Vec<QueueScan<'_>> = groups.iter().map(|group| self.low_water_marks().scan(&group.queues)).collect();
        let claimed = statement!(self, |conn| {
            let groups: Vec<ClaimGroup<'_>> =
                groups.iter().zip(&scans).map(|(group, scan)| group.query(scan)).collect();
            let query = ClaimQuery { now: self.now(), groups: &groups, max_bytes: CLAIM_BYTES as i64 };
            Ok(claim_deliveries(conn, &query).await?)
        })?;
        for ((group, scan), claimed) in groups.iter().zip(&scans).zip(&claimed) {
            self.metrics().events_claimed.inc_by(claimed.events.len() as u64);
            self.stats().count_claimed(group.calls[0].namespace, claimed.events.iter().map(|event| &event.row));
            self.note_claim(scan, claimed);
        }
        Ok(claimed)
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

/// Groups calls by their queues, and distributes the groups: the n-th wave has the n-th group of each namespace.
fn waves(calls: &[WithDeadline<ClaimCall>]) -> Vec<Vec<(Queues, Vec<usize>)>> {
    let mut groups: BTreeMap<Queues, Vec<usize>> = BTreeMap::new();
    for (index, timed) in calls.iter().enumerate() {
        groups.entry(timed.call.queues.clone()).or_default().push(index);
    }
    let mut groups_of: HashMap<NamespaceId, usize> = HashMap::new();
    let mut waves: Vec<Vec<(Queues, Vec<usize>)>> = Vec::new();
    for (queues, members) in groups {
        let namespace = calls[members[0]].call.namespace;
        let number = groups_of.entry(namespace).or_default();
        if *number == waves.len() {
            waves.push(Vec::new());
        }
        waves[*number].push((queues, members));
        *number += 1;
    }
    waves
}

impl<'a> GroupScan<'a> {
    /// Begins the scan of a group, or returns `None` if it has no calls. The scan ends at once if all workers wait, and
    /// an earlier batch has found the queues empty since they came.
    fn begin(
        engine: &'a Engine,
        queues: Queues,
        members: Vec<usize>,
        calls: &'a [WithDeadline<ClaimCall>],
    ) -> Option<Self> {
        let calls: Vec<&ClaimCall> = members.iter().map(|index| &calls[*index].call).collect();
        if calls.is_empty() {
            return None;
        }
        let waiters: Vec<u64> = calls.iter().filter_map(|call| call.waiter).collect();
        let all_wait = waiters.len() == calls.len();
        let hub_scan = engine.hub().begin_scan(queues.clone(), waiters);
        let mut group = GroupScan {
            shares: calls.iter().map(|_| Ok(Vec::new())).collect(),
            unserved: (0..calls.len()).collect(),
            hub_scan: Some(hub_scan),
            queues,
            calls,
            members,
            has_found: false,
            scans: 0,
            is_swept: false,
        };
        if all_wait && engine.hub().are_known_empty(&group.queues) {
            group.finish(Vec::new());
        }
        Some(group)
    }

    fn asking(&self) -> Vec<&'a ClaimCall> {
        self.unserved.iter().map(|index| self.calls[*index]).collect()
    }

    fn query(&self, scan: &QueueScan<'_>) -> ClaimGroup<'_> {
        let slack = if self.scans == 0 { SLACK } else { WIDE_SLACK };
        claim_group(&self.queues, &self.asking(), scan, slack)
    }

    /// Takes what a statement has claimed for the group. `is_full` says whether the statement may have been cut short
    /// by the size of the payloads.
    fn take(&mut self, claimed: Claimed, is_full: bool) -> Next {
        self.scans += 1;
        let is_cut_short = is_full && !claimed.left.is_empty();
        if claimed.is_out_of_reach() && !is_cut_short && !self.is_swept && self.scans < MAX_SCANS {
            return Next::Sweep;
        }
        self.has_found |= !claimed.events.is_empty();
        let left = entries_left(&claimed);
        for (index, share) in self.unserved.iter().zip(share_out(claimed, &self.asking())) {
            self.shares[*index] = Ok(share);
        }
        self.unserved.retain(|index| self.shares[*index].as_ref().is_ok_and(Vec::is_empty));
        if is_cut_short && !self.unserved.is_empty() {
            (self.scans, self.is_swept) = (0, false);
            return Next::Again;
        }
        self.finish(left);
        Next::Done
    }

    fn finish(&mut self, left: Vec<(QueueKey, usize)>) {
        if let Some(scan) = self.hub_scan.take() {
            scan.finish(&ScanResult { found: self.has_found, left });
        }
    }

    /// Gives an error to the calls that have no share, and the notices back to their waiters.
    fn fail(&mut self, error: &Error) {
        for index in std::mem::take(&mut self.unserved) {
            self.shares[index] = Err(error.for_another());
        }
        self.hub_scan = None;
    }
}

/// Returns the number of entries left in each queue. If all entries of the slack were left, there may
/// be many more behind them: then as many workers as were served may try again.
pub(super) fn entries_left(claimed: &Claimed) -> Vec<(QueueKey, usize)> {
    let more = |entries: usize| if entries < SLACK as usize { entries } else { entries + claimed.events.len() };
    claimed.left.iter().map(|(queue, entries)| (queue.clone(), more(*entries))).collect()
}

fn payload_bytes(event: &ClaimedEvent) -> usize {
    let payload = event.row.event.payload.as_ref().map_or(0, |payload| payload.0.as_str().len());
    payload.max(LARGE_PAYLOAD)
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
