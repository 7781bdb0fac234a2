//! Locked deliveries and their pending changes.
//!
//! Every transaction takes locks in the same order, to avoid deadlocks: first the ordering keys, then the
//! deliveries by id, then the rows of the events that roll up their pushes.
//!
//! [`ChangeSet::apply`] saves the changed deliveries and appends the lines to the event log. It turns pushes
//! that failed into dead letters, closes the dead letters of pushes that are pending again, and updates the
//! roll-ups of events, regardless of what changed the pushes. For each ordering key that was changed, it
//! moves the head of the key to `ready` if the head waits only for earlier events of its key. Keyed work
//! enters `ready` only in that last step.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use chrono::{DateTime, Utc};
use diesel_async::AsyncPgConnection;

use crate::domain::action::Action;
use crate::domain::delivery::{Delivery, LogLine, Readiness};
use crate::domain::ids::{DeliveryId, EventId, SubscriptionId};
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::error::Error;
use crate::store::tables::dead_letters::{
    NewDeadLetter, ReplayTerms, Revival, insert_dead_letters, revive_dead_letters,
};
use crate::store::tables::deliveries::{EarliestTimes, EnteredRow, Loaded, Save};
use crate::store::tables::deliveries::{load_deliveries, save_deliveries};
use crate::store::tables::event_log::{LogEntry, append_log};
use crate::store::tables::ordering::{ConsumerKey, PULL_QUEUE, find_heads, lock_keys_of_deliveries};
use crate::store::tables::ready::{queue_of_subscription, queue_of_tag};
use crate::store::tables::roll_ups::{RollUp, roll_up};
use crate::store::tables::subscriptions::lock_existing_subscriptions;

use crate::engine::ReadyEntry;
use crate::engine::waiting::low_water_marks;

/// Locked deliveries with their changes, which are written together.
pub(crate) struct ChangeSet {
    loaded: BTreeMap<DeliveryId, Loaded>,
    /// In the order of their first change.
    changed: Vec<DeliveryId>,
    is_changed: HashSet<DeliveryId>,
    to_tail: BTreeSet<DeliveryId>,
    moved_by_hand: BTreeSet<DeliveryId>,
    replays: BTreeMap<DeliveryId, ReplayTerms>,
    lines: Vec<LogLine>,
    lines_by_delivery: HashMap<DeliveryId, Vec<usize>>,
    scope: Scope,
}

/// The result of [`ChangeSet::apply`].
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The log entries, in the order in which the lines were added.
    pub entries: Vec<LogEntry>,
    /// The deliveries that entered `ready`.
    pub entered_ready: Vec<ReadyEntry>,
    /// The earliest times that the changed deliveries wait for.
    pub earliest_times: EarliestTimes,
    /// The subscriptions of the pushes that became dead letters, once per push.
    pub dead_lettered: Vec<SubscriptionId>,
}

impl ChangeSet {
    /// Locks and loads deliveries. Ids that do not exist are ignored.
    pub(crate) async fn load(conn: &mut AsyncPgConnection, scope: &Scope, ids: &[DeliveryId]) -> Result<Self, Error> {
        lock_keys_of_deliveries(conn, scope, ids).await?;
        Self::load_locked(conn, scope, ids).await
    }

    /// Loads deliveries that this transaction has already locked, together with their ordering keys.
    pub(crate) async fn load_locked(
        conn: &mut AsyncPgConnection,
        scope: &Scope,
        ids: &[DeliveryId],
    ) -> Result<Self, Error> {
        let loaded: BTreeMap<DeliveryId, Loaded> =
            load_deliveries(conn, scope, ids).await?.into_iter().map(|loaded| (loaded.delivery.id, loaded)).collect();
        Ok(ChangeSet {
            loaded,
            changed: Vec::new(),
            is_changed: HashSet::new(),
            to_tail: BTreeSet::new(),
            moved_by_hand: BTreeSet::new(),
            replays: BTreeMap::new(),
            lines: Vec::new(),
            lines_by_delivery: HashMap::new(),
            scope: scope.clone(),
        })
    }

    /// Finds out which pushes belong to deleted subscriptions. Locks the other subscriptions, which then
    /// cannot be deleted until the transaction ends. Call this before a push is retried or replayed: a
    /// pending push of a deleted subscription would wait forever.
    pub(crate) async fn find_orphans(&mut self, conn: &mut AsyncPgConnection) -> Result<(), Error> {
        let wanted: BTreeSet<SubscriptionId> =
            self.loaded.values().filter_map(|l| l.delivery.subscription_id).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let existing: BTreeSet<SubscriptionId> =
            lock_existing_subscriptions(conn, &self.scope, &wanted.into_iter().collect::<Vec<_>>())
                .await?
                .into_iter()
                .collect();
        for loaded in self.loaded.values_mut() {
            loaded.is_orphan = loaded.delivery.subscription_id.is_some_and(|id| !existing.contains(&id));
        }
        Ok(())
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(crate) fn get(&self, id: DeliveryId) -> Option<&Loaded> {
        self.loaded.get(&id)
    }

    /// Returns the ids of the deliveries that exist.
    pub(crate) fn ids(&self) -> Vec<DeliveryId> {
        self.loaded.keys().copied().collect()
    }

    /// Returns the ids of the deliveries for which `holds` is true.
    pub(crate) fn ids_where(&self, holds: impl Fn(&Loaded) -> bool) -> Vec<DeliveryId> {
        self.loaded.iter().filter(|(_, loaded)| holds(loaded)).map(|(id, _)| *id).collect()
    }

    /// Returns a delivery that the caller is going to change. Deliveries enter `ready` in the order of their
    /// first change.
    pub(crate) fn change(&mut self, id: DeliveryId) -> Option<&mut Loaded> {
        let loaded = self.loaded.get_mut(&id)?;
        if self.is_changed.insert(id) {
            self.changed.push(id);
        }
        Some(loaded)
    }

    /// Moves a delivery to the tail of its ordering key, if it has lost its position there. A failed delivery
    /// that kept its position, and so blocked the key, stays ahead of the later ones.
    pub(crate) fn send_to_tail(&mut self, id: DeliveryId) {
        if self.loaded.get(&id).is_some_and(|loaded| !loaded.has_order_seq) {
            self.to_tail.insert(id);
        }
    }

    /// Records that an operator moves a push to the dead letters.
    pub(crate) fn move_to_dead_letters(&mut self, id: DeliveryId) {
        self.moved_by_hand.insert(id);
    }

    /// Records how the dead letter of a push is replayed.
    pub(crate) fn replay(&mut self, id: DeliveryId, terms: ReplayTerms) {
        self.replays.insert(id, terms);
    }

    /// Adds a line for the event log. Returns its index in [`Applied::entries`].
    pub(crate) fn log(&mut self, line: LogLine) -> usize {
        let index = self.lines.len();
        self.lines_by_delivery.entry(line.delivery_id).or_default().push(index);
        self.lines.push(line);
        index
    }

    /// Adds several lines for the event log. Returns the index of the first.
    pub(crate) fn log_all(&mut self, lines: Vec<LogLine>) -> usize {
        let first = self.lines.len();
        for line in lines {
            self.log(line);
        }
        first
    }

    /// Returns the lines added so far.
    pub(crate) fn lines(&self) -> &[LogLine] {
        &self.lines
    }

    /// Returns the lines added so far for one delivery, each with its index, the latest first.
    pub(crate) fn lines_of(&self, delivery_id: DeliveryId) -> impl DoubleEndedIterator<Item = (usize, &LogLine)> {
        let indices = self.lines_by_delivery.get(&delivery_id).map(Vec::as_slice).unwrap_or_default();
        indices.iter().rev().map(|index| (*index, &self.lines[*index]))
    }

    /// Writes all changes.
    pub(crate) async fn apply(mut self, conn: &mut AsyncPgConnection) -> Result<Applied, Error> {
        let dead_letters = self.find_dead_letters();
        for letter in &dead_letters {
            let line = self.loaded.get(&letter.delivery_id).map(|l| self.dead_lettered(&l.delivery, letter.reason));
            self.log_all(line.into_iter().collect());
        }
        let mut applied = self.save(conn).await?;
        if !self.lines.is_empty() {
            applied.entries = append_log(conn, &self.scope, &self.lines).await?;
        }
        if !dead_letters.is_empty() {
            let subscription_of =
                |letter: &NewDeadLetter| self.loaded.get(&letter.delivery_id)?.delivery.subscription_id;
            applied.dead_lettered = dead_letters.iter().filter_map(subscription_of).collect();
            insert_dead_letters(conn, &self.scope, &dead_letters).await?;
        }
        let revivals = self.revivals();
        if !revivals.is_empty() {
            revive_dead_letters(conn, &self.scope, &revivals).await?;
        }
        let roll_ups = self.roll_ups();
        if !roll_ups.is_empty() {
            roll_up(conn, &self.scope, &roll_ups).await?;
        }
        let keys = self.changed().filter_map(|l| consumer_key(&l.delivery)).collect();
        applied.entered_ready.extend(advance_keys(conn, &self.scope, keys).await?);
        Ok(applied)
    }

    async fn save(&self, conn: &mut AsyncPgConnection) -> Result<Applied, Error> {
        let saves: Vec<Save<'_>> = self
            .changed()
            .map(|loaded| Save { delivery: &loaded.delivery, to_tail: self.to_tail.contains(&loaded.delivery.id) })
            .collect();
        let first =
            |pick: fn(&Delivery) -> Option<DateTime<Utc>>| self.changed().filter_map(|l| pick(&l.delivery)).min();
        let mut applied = Applied {
            earliest_times: EarliestTimes {
                due_at: first(Delivery::due_at),
                expires_at: first(|delivery| delivery.expires_at),
                look_at: first(|delivery| delivery.lease_expires_at),
            },
            ..Applied::default()
        };
        if !saves.is_empty() {
            let entered = save_deliveries(conn, &self.scope, &saves).await?;
            applied.entered_ready =
                entered.into_iter().filter_map(|row| entered_ready(row, self.loaded.get(&row.id))).collect();
        }
        Ok(applied)
    }

    fn changed(&self) -> impl Iterator<Item = &Loaded> {
        self.changed.iter().filter_map(|id| self.loaded.get(id))
    }

    fn pushes(&self) -> impl Iterator<Item = &Loaded> {
        self.changed().filter(|loaded| loaded.delivery.subscription_id.is_some())
    }

    /// Returns the pushes that this change set lets fail, as new dead letters.
    fn find_dead_letters(&self) -> Vec<NewDeadLetter> {
        let has_failed =
            |loaded: &&Loaded| loaded.previous_status != Status::Failed && loaded.delivery.status == Status::Failed;
        let dead_letter = |loaded: &Loaded| {
            let id = loaded.delivery.id;
            if self.moved_by_hand.contains(&id) {
                return NewDeadLetter { delivery_id: id, reason: "manual", actor: self.scope.actor.clone() };
            }
            NewDeadLetter { delivery_id: id, reason: self.dead_letter_reason(&loaded.delivery), actor: None }
        };
        self.pushes().filter(has_failed).map(dead_letter).collect()
    }

    /// Returns the log entry of a new dead letter. Its reason is that of the operator, if one moved the push.
    fn dead_lettered(&self, delivery: &Delivery, reason: &str) -> LogLine {
        let given = delivery.last_error.as_deref().filter(|_| self.moved_by_hand.contains(&delivery.id));
        delivery.dead_lettered(given.unwrap_or(reason))
    }

    fn dead_letter_reason(&self, delivery: &Delivery) -> &'static str {
        match self.lines_of(delivery.id).next().map(|(_, line)| line) {
            Some(line) if line.action == Action::Expired => "expired",
            Some(line) if line.worker_id.is_none() => "poison",
            Some(line) if line.push.is_terminal => "terminal",
            _ if delivery.retry_count >= delivery.max_retries => "exhausted",
            _ => "terminal",
        }
    }

    /// Returns the finished pushes that this change set makes pending again.
    fn revivals(&self) -> Vec<Revival> {
        let is_revived =
            |loaded: &&Loaded| loaded.previous_status.is_finished() && !loaded.delivery.status.is_finished();
        let revival = |id: DeliveryId| Revival {
            delivery_id: id,
            actor: self.scope.actor.clone(),
            // The operator's reason is that of the RETRIED or REPLAYED line.
            reason: self.lines_of(id).next().and_then(|(_, line)| line.reason.clone()),
            replay: self.replays.get(&id).cloned(),
        };
        self.pushes().filter(is_revived).map(|loaded| revival(loaded.delivery.id)).collect()
    }

    /// Returns the changes in the numbers of open and failed pushes, by event.
    fn roll_ups(&self) -> BTreeMap<EventId, RollUp> {
        let mut roll_ups: BTreeMap<EventId, RollUp> = BTreeMap::new();
        for Loaded { delivery, previous_status, .. } in self.pushes() {
            let roll_up = roll_ups.entry(delivery.event_id).or_default();
            roll_up.open += i32::from(!delivery.status.is_finished()) - i32::from(!previous_status.is_finished());
            roll_up.failed +=
                i32::from(delivery.status == Status::Failed) - i32::from(*previous_status == Status::Failed);
        }
        roll_ups.retain(|_, roll_up| *roll_up != RollUp::default());
        roll_ups
    }
}

/// Returns the ordering key of a delivery with its consumer: a subscription or the pull queue.
fn consumer_key(delivery: &Delivery) -> Option<ConsumerKey> {
    Some((delivery.ordering_key.clone()?, delivery.subscription_id.unwrap_or(PULL_QUEUE)))
}

/// Moves the heads of ordering keys to `ready`. Returns the deliveries that entered. The caller must hold the
/// locks of the keys.
pub(crate) async fn advance_keys(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    keys: BTreeSet<ConsumerKey>,
) -> Result<Vec<ReadyEntry>, Error> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let ids = find_heads(conn, scope, &keys).await?;
    let mut heads = load_deliveries(conn, scope, &ids).await?;
    for head in &mut heads {
        head.delivery.readiness = Readiness::Ready;
    }
    let saves: Vec<Save<'_>> = heads.iter().map(|h| Save { delivery: &h.delivery, to_tail: false }).collect();
    if saves.is_empty() {
        return Ok(Vec::new());
    }
    let entered = save_deliveries(conn, scope, &saves).await?;
    let heads: HashMap<DeliveryId, &Loaded> = heads.iter().map(|head| (head.delivery.id, head)).collect();
    let head = |row: &EnteredRow| heads.get(&row.id).copied();
    Ok(entered.into_iter().filter_map(|row| entered_ready(row, head(&row))).collect())
}

fn entered_ready(row: EnteredRow, loaded: Option<&Loaded>) -> Option<ReadyEntry> {
    let loaded = loaded?;
    let queues = match loaded.delivery.subscription_id {
        Some(id) => [queue_of_subscription(id)].into(),
        None => loaded.tags.iter().map(|tag| queue_of_tag(tag)).collect(),
    };
    Some(ReadyEntry { queues, position: low_water_marks::QueuePosition { rank: row.rank, seq: row.seq } })
}
