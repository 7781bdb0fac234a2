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
use std::sync::Arc;

use chrono::{DateTime, Utc};
use diesel_async::AsyncPgConnection;

use crate::domain::action::Action;
use crate::domain::actor::ServerActor;
use crate::domain::delivery::{Delivery, LogLine, Readiness};
use crate::domain::ids::{DeliveryId, DeliveryKey, EventKey, SubscriptionKey};
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
use crate::store::tables::ready::QueueKey;
use crate::store::tables::roll_ups::{RollUp, roll_up};
use crate::store::tables::subscriptions::lock_existing_subscriptions;

use crate::engine::ReadyEntry;
use crate::engine::stats::CountedChange;
use crate::engine::waiting::low_water_marks;

/// Locked deliveries with their changes, which are written together.
pub(crate) struct ChangeSet {
    loaded: BTreeMap<DeliveryKey, Loaded>,
    /// In the order of their first change.
    changed: Vec<DeliveryKey>,
    is_changed: HashSet<DeliveryKey>,
    to_tail: BTreeSet<DeliveryKey>,
    moved_by_hand: BTreeSet<DeliveryKey>,
    replays: BTreeMap<DeliveryKey, ReplayTerms>,
    lines: Vec<LogLine>,
    lines_by_delivery: HashMap<DeliveryKey, Vec<usize>>,
    /// Who makes the changes, if it is an operator.
    actor: Option<Arc<str>>,
    now: Option<DateTime<Utc>>,
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
    pub dead_lettered: Vec<SubscriptionKey>,
    /// What the log entries are about, for the stats.
    pub counted: Vec<CountedChange>,
}

impl ChangeSet {
    /// Locks and loads deliveries of a namespace, on behalf of the caller. Ids that do not exist are ignored.
    pub(crate) async fn load(conn: &mut AsyncPgConnection, scope: &Scope, ids: &[DeliveryId]) -> Result<Self, Error> {
        let changes = Self::load_all(conn, scope.now, &scope.deliveries(ids)).await?;
        Ok(ChangeSet { actor: scope.actor.clone(), ..changes })
    }

    /// Locks and loads deliveries of any namespaces. Those that do not exist are ignored.
    pub(crate) async fn load_all(
        conn: &mut AsyncPgConnection,
        now: Option<DateTime<Utc>>,
        keys: &[DeliveryKey],
    ) -> Result<Self, Error> {
        lock_keys_of_deliveries(conn, keys).await?;
        Self::load_locked(conn, now, keys).await
    }

    /// Loads deliveries that this transaction has already locked, together with their ordering keys.
    pub(crate) async fn load_locked(
        conn: &mut AsyncPgConnection,
        now: Option<DateTime<Utc>>,
        keys: &[DeliveryKey],
    ) -> Result<Self, Error> {
        let loaded: BTreeMap<DeliveryKey, Loaded> =
            load_deliveries(conn, now, keys).await?.into_iter().map(|loaded| (loaded.delivery.key(), loaded)).collect();
        Ok(ChangeSet {
            loaded,
            changed: Vec::new(),
            is_changed: HashSet::new(),
            to_tail: BTreeSet::new(),
            moved_by_hand: BTreeSet::new(),
            replays: BTreeMap::new(),
            lines: Vec::new(),
            lines_by_delivery: HashMap::new(),
            actor: None,
            now,
        })
    }

    /// Finds out which pushes belong to deleted subscriptions. Locks the other subscriptions, which then
    /// cannot be deleted until the transaction ends. Call this before a push is retried or replayed: a
    /// pending push of a deleted subscription would wait forever.
    pub(crate) async fn find_orphans(&mut self, conn: &mut AsyncPgConnection) -> Result<(), Error> {
        let wanted: BTreeSet<SubscriptionKey> =
            self.loaded.values().filter_map(|l| subscription(&l.delivery)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let existing = lock_existing_subscriptions(conn, &wanted).await?;
        for loaded in self.loaded.values_mut() {
            loaded.is_orphan = subscription(&loaded.delivery).is_some_and(|key| !existing.contains(&key));
        }
        Ok(())
    }

    pub(crate) fn get(&self, key: DeliveryKey) -> Option<&Loaded> {
        self.loaded.get(&key)
    }

    /// Returns the keys of the deliveries that exist.
    pub(crate) fn keys(&self) -> Vec<DeliveryKey> {
        self.loaded.keys().copied().collect()
    }

    /// Returns the keys of the deliveries for which `holds` is true.
    pub(crate) fn keys_where(&self, holds: impl Fn(&Loaded) -> bool) -> Vec<DeliveryKey> {
        self.loaded.iter().filter(|(_, loaded)| holds(loaded)).map(|(key, _)| *key).collect()
    }

    /// Returns a delivery that the caller is going to change. Deliveries enter `ready` in the order of their
    /// first change.
    pub(crate) fn change(&mut self, key: DeliveryKey) -> Option<&mut Loaded> {
        let loaded = self.loaded.get_mut(&key)?;
        if self.is_changed.insert(key) {
            self.changed.push(key);
        }
        Some(loaded)
    }

    /// Moves a delivery to the tail of its ordering key, if it has lost its position there. A failed delivery
    /// that kept its position, and so blocked the key, stays ahead of the later ones.
    pub(crate) fn send_to_tail(&mut self, key: DeliveryKey) {
        if self.loaded.get(&key).is_some_and(|loaded| !loaded.has_order_seq) {
            self.to_tail.insert(key);
        }
    }

    /// Records that an operator moves a push to the dead letters.
    pub(crate) fn move_to_dead_letters(&mut self, key: DeliveryKey) {
        self.moved_by_hand.insert(key);
    }

    /// Returns who makes the changes, if that is one caller or one service.
    pub(crate) fn actor(&self) -> Option<Arc<str>> {
        self.actor.clone()
    }

    /// Records how the dead letter of a push is replayed.
    pub(crate) fn replay(&mut self, key: DeliveryKey, terms: ReplayTerms) {
        self.replays.insert(key, terms);
    }

    /// Adds a line for the event log. Returns its index in [`Applied::entries`]. A line that names no actor gets
    /// that of the scope. A cancellation keeps its own: another caller may have asked for it, earlier.
    pub(crate) fn log(&mut self, mut line: LogLine) -> usize {
        if line.actor.is_none() && line.action != Action::Cancelled {
            line.actor = self.actor.as_deref().map(str::to_owned);
        }
        let index = self.lines.len();
        self.lines_by_delivery.entry(line.namespace.delivery(line.delivery_id)).or_default().push(index);
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
    pub(crate) fn lines_of(&self, key: DeliveryKey) -> impl DoubleEndedIterator<Item = (usize, &LogLine)> {
        let indices = self.lines_by_delivery.get(&key).map(Vec::as_slice).unwrap_or_default();
        indices.iter().rev().map(|index| (*index, &self.lines[*index]))
    }

    /// Writes all changes.
    pub(crate) async fn apply(mut self, conn: &mut AsyncPgConnection) -> Result<Applied, Error> {
        let dead_letters = self.find_dead_letters();
        for letter in &dead_letters {
            let line = self.loaded.get(&letter.delivery).map(|l| self.dead_lettered(&l.delivery, letter.reason));
            self.log_all(line.into_iter().collect());
        }
        let mut applied = self.save(conn).await?;
        if !self.lines.is_empty() {
            applied.entries = append_log(conn, self.now, &self.lines).await?;
            applied.counted = self.lines.iter().map(|line| self.counted(line)).collect();
        }
        if !dead_letters.is_empty() {
            let subscription_of = |letter: &NewDeadLetter| subscription(&self.loaded.get(&letter.delivery)?.delivery);
            applied.dead_lettered = dead_letters.iter().filter_map(subscription_of).collect();
            insert_dead_letters(conn, self.now, &dead_letters).await?;
        }
        let revivals = self.revivals();
        if !revivals.is_empty() {
            revive_dead_letters(conn, self.now, &revivals).await?;
        }
        let roll_ups = self.roll_ups();
        if !roll_ups.is_empty() {
            roll_up(conn, self.now, &roll_ups).await?;
        }
        let keys = self.changed().filter_map(|l| consumer_key(&l.delivery)).collect();
        applied.entered_ready.extend(advance_keys(conn, self.now, keys).await?);
        Ok(applied)
    }

    async fn save(&self, conn: &mut AsyncPgConnection) -> Result<Applied, Error> {
        let saves: Vec<Save<'_>> = self
            .changed()
            .map(|loaded| Save { delivery: &loaded.delivery, to_tail: self.to_tail.contains(&loaded.delivery.key()) })
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
            let entered = save_deliveries(conn, self.now, &saves).await?;
            applied.entered_ready =
                entered.into_iter().filter_map(|row| entered_ready(row, self.loaded.get(&row.key()))).collect();
        }
        Ok(applied)
    }

    fn changed(&self) -> impl Iterator<Item = &Loaded> {
        self.changed.iter().filter_map(|key| self.loaded.get(key))
    }

    fn pushes(&self) -> impl Iterator<Item = &Loaded> {
        self.changed().filter(|loaded| loaded.delivery.subscription_id.is_some())
    }

    /// Returns the pushes that this change set lets fail, as new dead letters.
    fn find_dead_letters(&self) -> Vec<NewDeadLetter> {
        let has_failed =
            |loaded: &&Loaded| loaded.previous_status != Status::Failed && loaded.delivery.status == Status::Failed;
        let dead_letter = |loaded: &Loaded| {
            let delivery = loaded.delivery.key();
            if self.moved_by_hand.contains(&delivery) {
                return NewDeadLetter { delivery, reason: "manual", actor: self.actor.clone() };
            }
            NewDeadLetter { delivery, reason: self.dead_letter_reason(&loaded.delivery), actor: None }
        };
        self.pushes().filter(has_failed).map(dead_letter).collect()
    }

    /// Returns the log entry of a new dead letter. Its reason is that of the operator, if one moved the push.
    /// Otherwise its actor is the service that let the push fail.
    fn dead_lettered(&self, delivery: &Delivery, reason: &str) -> LogLine {
        if self.moved_by_hand.contains(&delivery.key()) {
            return delivery.dead_lettered(delivery.last_error.as_deref().unwrap_or(reason));
        }
        let mut line = delivery.dead_lettered(reason);
        let service = self.lines_of(delivery.key()).find_map(|(_, line)| line.actor.clone());
        line.actor = Some(service.unwrap_or_else(|| ServerActor::Dispatcher.as_str().to_owned()));
        line
    }

    fn dead_letter_reason(&self, delivery: &Delivery) -> &'static str {
        match self.lines_of(delivery.key()).next().map(|(_, line)| line) {
            Some(line) if line.action == Action::Expired => "expired",
            Some(line) if line.worker_id.is_none() => "poison",
            Some(line) if line.push.is_terminal => "terminal",
            _ if delivery.retry_count >= delivery.max_retries => "exhausted",
            _ => "terminal",
        }
    }

    /// Returns what the stats count of a line.
    fn counted(&self, line: &LogLine) -> CountedChange {
        let loaded = self.loaded.get(&line.namespace.delivery(line.delivery_id));
        let is_push = loaded.is_some_and(|loaded| loaded.delivery.is_push());
        CountedChange {
            event: line.namespace.event(line.event_id),
            action: line.action,
            is_push,
            is_retried: line.action == Action::Failed && line.next_retry_at.is_some(),
            is_cancelled: loaded.is_some_and(|loaded| loaded.delivery.status == Status::Cancelled),
            // Pushes belong to subscriptions and not to tags.
            tags: loaded.filter(|_| !is_push).map(|loaded| loaded.tags.clone()).unwrap_or_default(),
        }
    }

    /// Returns the finished pushes that this change set makes pending again.
    fn revivals(&self) -> Vec<Revival> {
        let is_revived =
            |loaded: &&Loaded| loaded.previous_status.is_finished() && !loaded.delivery.status.is_finished();
        let revival = |delivery: DeliveryKey| Revival {
            delivery,
            actor: self.actor.clone(),
            // The operator's reason is that of the RETRIED or REPLAYED line.
            reason: self.lines_of(delivery).next().and_then(|(_, line)| line.reason.clone()),
            replay: self.replays.get(&delivery).cloned(),
        };
        self.pushes().filter(is_revived).map(|loaded| revival(loaded.delivery.key())).collect()
    }

    /// Returns the changes in the numbers of open and failed pushes, by event.
    fn roll_ups(&self) -> BTreeMap<EventKey, RollUp> {
        let mut roll_ups: BTreeMap<EventKey, RollUp> = BTreeMap::new();
        for Loaded { delivery, previous_status, .. } in self.pushes() {
            let roll_up = roll_ups.entry(delivery.event_key()).or_default();
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
    Some(ConsumerKey {
        namespace: delivery.namespace,
        key: delivery.ordering_key.clone()?,
        consumer: delivery.subscription_id.unwrap_or(PULL_QUEUE),
    })
}

fn subscription(delivery: &Delivery) -> Option<SubscriptionKey> {
    delivery.subscription_id.map(|id| delivery.namespace.subscription(id))
}

/// Moves the heads of ordering keys to `ready`. Returns the deliveries that entered. The caller must hold the
/// locks of the keys.
pub(crate) async fn advance_keys(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    keys: BTreeSet<ConsumerKey>,
) -> Result<Vec<ReadyEntry>, Error> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let found = find_heads(conn, &keys).await?;
    let mut heads = load_deliveries(conn, now, &found).await?;
    for head in &mut heads {
        head.delivery.readiness = Readiness::Ready;
    }
    let saves: Vec<Save<'_>> = heads.iter().map(|h| Save { delivery: &h.delivery, to_tail: false }).collect();
    if saves.is_empty() {
        return Ok(Vec::new());
    }
    let entered = save_deliveries(conn, now, &saves).await?;
    let heads: HashMap<DeliveryKey, &Loaded> = heads.iter().map(|head| (head.delivery.key(), head)).collect();
    let head = |row: &EnteredRow| heads.get(&row.key()).copied();
    Ok(entered.into_iter().filter_map(|row| entered_ready(row, head(&row))).collect())
}

fn entered_ready(row: EnteredRow, loaded: Option<&Loaded>) -> Option<ReadyEntry> {
    let loaded = loaded?;
    let queues = match subscription(&loaded.delivery) {
        Some(key) => [QueueKey::of_subscription(key)].into(),
        None => loaded.tags.iter().map(|tag| QueueKey::of_tag(loaded.delivery.namespace, tag)).collect(),
    };
    Some(ReadyEntry { queues, position: low_water_marks::QueuePosition { rank: row.rank, seq: row.seq } })
}
