//! Deliveries under lock, being changed.
//!
//! Locks are always taken in the same order, so that no two transactions wait for each other
//! in a circle: first the ordering keys, then the rows by id. `write` saves what was changed,
//! appends the lines to the log and, for every ordering key that was changed, lets the head
//! of the key into `ready` if it waits for nothing but its turn. That last step is the only
//! way in which keyed work ever enters `ready`.
//!
//! Pushes that were given up go to the dead letters in the same breath, whatever it was that
//! ended them; those that come back to life leave them, whatever it was that revived them; and
//! what became of pushes is counted on their event's own row: after the
//! deliveries, so that everybody takes these locks in the same order, too.

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

/// Deliveries under lock.
pub struct ChangeSet {
    loaded: BTreeMap<DeliveryId, Loaded>,
    changed: Vec<DeliveryId>,
    is_changed: HashSet<DeliveryId>,
    to_tail: BTreeSet<DeliveryId>,
    moved_by_hand: BTreeSet<DeliveryId>,
    replays: BTreeMap<DeliveryId, ReplayTerms>,
    lines: Vec<LogLine>,
    lines_by_delivery: HashMap<DeliveryId, Vec<usize>>,
    scope: Scope,
}

/// What was written.
#[derive(Debug, Default)]
pub struct Applied {
    /// The log entries, in the order in which the lines were given.
    pub entries: Vec<LogEntry>,
    /// What entered `ready`.
    pub entered_ready: Vec<ReadyEntry>,
    /// The first moments that any of it waits for now.
    pub earliest_times: EarliestTimes,
    /// Whose pushes were given up.
    pub dead_lettered: Vec<SubscriptionId>,
}

impl ChangeSet {
    /// Locks and loads deliveries; ids that do not exist are simply not there.
    pub async fn load(conn: &mut AsyncPgConnection, scope: &Scope, ids: &[DeliveryId]) -> Result<Self, Error> {
        lock_keys_of_deliveries(conn, ids).await?;
        Self::load_locked(conn, scope, ids).await
    }

    /// Loads deliveries that this transaction has locked already, with their keys.
    pub async fn load_locked(conn: &mut AsyncPgConnection, scope: &Scope, ids: &[DeliveryId]) -> Result<Self, Error> {
        let loaded: BTreeMap<DeliveryId, Loaded> = load_deliveries(conn, ids, scope.now)
            .await?
            .into_iter()
            .map(|loaded| (loaded.delivery.id, loaded))
            .collect();
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

    /// Finds out which pushes have nobody left to go to. The others keep their subscriptions until
    /// the transaction ends. To be asked before any is brought back to life: it would wait forever.
    pub async fn find_orphans(&mut self, conn: &mut AsyncPgConnection) -> Result<(), Error> {
        let wanted: BTreeSet<SubscriptionId> =
            self.loaded.values().filter_map(|l| l.delivery.subscription_id).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let living: BTreeSet<SubscriptionId> =
            lock_existing_subscriptions(conn, &wanted.into_iter().collect::<Vec<_>>()).await?.into_iter().collect();
        for loaded in self.loaded.values_mut() {
            loaded.is_orphan = loaded.delivery.subscription_id.is_some_and(|id| !living.contains(&id));
        }
        Ok(())
    }

    /// Returns the name that the caller gave, or nothing.
    pub fn actor(&self) -> &str {
        self.scope.actor.as_deref().unwrap_or_default()
    }

    /// Looks at a delivery.
    pub fn get(&self, id: DeliveryId) -> Option<&Loaded> {
        self.loaded.get(&id)
    }

    /// All ids that were found.
    pub fn ids(&self) -> Vec<DeliveryId> {
        self.loaded.keys().copied().collect()
    }

    /// The ids of those for which something holds.
    pub fn ids_where(&self, holds: impl Fn(&Loaded) -> bool) -> Vec<DeliveryId> {
        self.loaded.iter().filter(|(_, loaded)| holds(loaded)).map(|(id, _)| *id).collect()
    }

    /// Takes a delivery in hand to change it. What enters `ready` does so in the order in
    /// which it was first changed.
    pub fn change(&mut self, id: DeliveryId) -> Option<&mut Loaded> {
        let loaded = self.loaded.get_mut(&id)?;
        if self.is_changed.insert(id) {
            self.changed.push(id);
        }
        Some(loaded)
    }

    /// Lets a delivery that has lost its place queue up behind its key anew. One that was given up
    /// and kept its place, so that the rest waits, goes first.
    pub fn send_to_tail(&mut self, id: DeliveryId) {
        if self.loaded.get(&id).is_some_and(|loaded| !loaded.has_order_seq) {
            self.to_tail.insert(id);
        }
    }

    /// A push is given up by an operator's word.
    pub fn move_to_dead_letters(&mut self, id: DeliveryId) {
        self.moved_by_hand.insert(id);
    }

    /// A push is revived from the dead letters.
    pub fn replay(&mut self, id: DeliveryId, terms: ReplayTerms) {
        self.replays.insert(id, terms);
    }

    /// Notes a line for the log; the answer is its index in [`Applied::entries`].
    pub fn log(&mut self, line: LogLine) -> usize {
        let index = self.lines.len();
        self.lines_by_delivery.entry(line.delivery_id).or_default().push(index);
        self.lines.push(line);
        index
    }

    /// Notes several.
    pub fn log_all(&mut self, lines: Vec<LogLine>) -> usize {
        let first = self.lines.len();
        for line in lines {
            self.log(line);
        }
        first
    }

    /// The lines noted so far.
    pub fn lines(&self) -> &[LogLine] {
        &self.lines
    }

    /// The lines noted so far of one delivery, each with its index, the latest first.
    pub fn lines_of(&self, delivery_id: DeliveryId) -> impl DoubleEndedIterator<Item = (usize, &LogLine)> {
        let indices = self.lines_by_delivery.get(&delivery_id).map(Vec::as_slice).unwrap_or_default();
        indices.iter().rev().map(|index| (*index, &self.lines[*index]))
    }

    /// Writes everything.
    pub async fn apply(mut self, conn: &mut AsyncPgConnection) -> Result<Applied, Error> {
        let dead_letters = self.find_dead_letters();
        for letter in &dead_letters {
            let line = self.loaded.get(&letter.delivery_id).map(|l| l.delivery.dead_lettered(letter.reason));
            self.log_all(line.into_iter().collect());
        }
        let mut applied = self.save(conn).await?;
        if !self.lines.is_empty() {
            applied.entries = append_log(conn, &self.scope, &self.lines).await?;
        }
        if !dead_letters.is_empty() {
            let whose = |letter: &NewDeadLetter| self.loaded.get(&letter.delivery_id)?.delivery.subscription_id;
            applied.dead_lettered = dead_letters.iter().filter_map(whose).collect();
            insert_dead_letters(conn, self.scope.now, &dead_letters).await?;
        }
        let revivals = self.revivals();
        if !revivals.is_empty() {
            revive_dead_letters(conn, self.scope.now, &revivals).await?;
        }
        let roll_ups = self.roll_ups();
        if !roll_ups.is_empty() {
            roll_up(conn, self.scope.now, &roll_ups).await?;
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
            let entered = save_deliveries(conn, self.scope.now, &saves).await?;
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

    /// Those that have just been given up, and why.
    fn find_dead_letters(&self) -> Vec<NewDeadLetter> {
        let given_up =
            |loaded: &&Loaded| loaded.previous_status != Status::Failed && loaded.delivery.status == Status::Failed;
        let dead_letter = |loaded: &Loaded| {
            let id = loaded.delivery.id;
            if self.moved_by_hand.contains(&id) {
                return NewDeadLetter { delivery_id: id, reason: "manual", moved_by: Some(self.actor().to_owned()) };
            }
            NewDeadLetter { delivery_id: id, reason: self.dead_letter_reason(&loaded.delivery), moved_by: None }
        };
        self.pushes().filter(given_up).map(dead_letter).collect()
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

    /// Those that have just come back to life.
    fn revivals(&self) -> Vec<Revival> {
        let is_revived =
            |loaded: &&Loaded| loaded.previous_status.is_finished() && !loaded.delivery.status.is_finished();
        let revival = |id: DeliveryId| Revival { delivery_id: id, replay: self.replays.get(&id).cloned() };
        self.pushes().filter(is_revived).map(|loaded| revival(loaded.delivery.id)).collect()
    }

    /// What changed for the pushes of each event.
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

/// The key behind which a delivery queues among those of its consumer.
fn consumer_key(delivery: &Delivery) -> Option<ConsumerKey> {
    Some((delivery.ordering_key.clone()?, delivery.subscription_id.unwrap_or(PULL_QUEUE)))
}

/// Lets the heads of keys into `ready`; answers what entered. The keys'
/// locks must be held.
pub async fn advance_keys(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    keys: BTreeSet<ConsumerKey>,
) -> Result<Vec<ReadyEntry>, Error> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let ids = find_heads(conn, scope, &keys).await?;
    let mut heads = load_deliveries(conn, &ids, scope.now).await?;
    for head in &mut heads {
        head.delivery.readiness = Readiness::Ready;
    }
    let saves: Vec<Save<'_>> = heads.iter().map(|h| Save { delivery: &h.delivery, to_tail: false }).collect();
    if saves.is_empty() {
        return Ok(Vec::new());
    }
    let entered = save_deliveries(conn, scope.now, &saves).await?;
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
