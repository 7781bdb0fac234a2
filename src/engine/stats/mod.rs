//! Stats: what this server has done, counted in memory and stored every few seconds.
//!
//! Counting takes one lock per batch and no statement. The time of what is counted is that of the database, which every
//! statement returns anyway. [`Engine::record_stats`] stores what has changed, as whole values of rows that no other
//! server writes: after an outage, or if it is not known whether a statement was committed, the same values are written
//! again ([`counters`]).
//!
//! A completion knows neither the tags of its event nor when it was published. Both are remembered when the event is
//! claimed ([`remembered_claims`]). Completions of events that were claimed at another server are looked up together,
//! before the counts are stored. Until then they are in the totals of their namespace only.
//!
//! A server that dies loses what it has counted since it last stored its counts.

mod counters;
mod remembered_claims;

use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};

use crate::domain::action::Action;
use crate::domain::ids::{EventKey, NamespaceId};
use crate::domain::stats::{Counter, Counts};
use crate::error::Error;
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::events::{NamespacedEvent, StoredEvent};
use crate::store::tables::stats::{StatsRow, find_published_events, record_stats};

use crate::engine::Engine;
use counters::Counters;
use remembered_claims::{RememberedClaim, RememberedClaims};

/// The maximum number of completions that are looked up before the counts are stored. Further ones stay without tag and
/// latency.
const MAX_UNRESOLVED: usize = 5_000;

/// The number of rows that one statement stores.
const ROWS_PER_STATEMENT: usize = 5_000;

/// The maximum number of times that the clock may be set back before counts that could not be stored are lost.
const MAX_UNSTORED: usize = 4;

/// The counts of this server.
pub struct Stats {
    state: Mutex<State>,
}

struct State {
    /// The number under which this server stores its counts.
    server: i64,
    counters: Counters,
    claims: RememberedClaims,
    /// Completions of events of which neither the tags nor the time of the publish is known.
    unresolved: Vec<UnresolvedCompletion>,
    /// What could not be stored under former numbers of this server.
    unstored: Vec<ChangedCounts>,
}

/// Counts to be stored, as whole values.
struct ChangedCounts {
    server: i64,
    revision: i32,
    rows: Vec<StatsRow>,
}

#[derive(Debug, Clone, Copy)]
struct UnresolvedCompletion {
    event: EventKey,
    completed_at: DateTime<Utc>,
}

/// A change of a delivery that is counted.
#[derive(Debug)]
pub(crate) struct CountedChange {
    pub event: EventKey,
    pub action: Action,
    pub is_push: bool,
    /// Whether another attempt follows a failure.
    pub is_retried: bool,
    /// Whether the delivery is cancelled now: by this change, or by one that came with it.
    pub is_cancelled: bool,
    /// Empty for a push.
    pub tags: Vec<String>,
}

impl Default for Stats {
    fn default() -> Self {
        Stats { state: Mutex::new(State::new()) }
    }
}

impl State {
    fn new() -> Self {
        State {
            server: random_number(),
            counters: Counters::default(),
            claims: RememberedClaims::default(),
            unresolved: Vec::new(),
            unstored: Vec::new(),
        }
    }

    /// Begins to count for the present time, after the clock was set back. Under the old number, counts that are stored and
    /// forgotten would be overwritten.
    fn begin_again(&mut self) {
        self.server = random_number();
        self.counters = Counters::default();
    }

    /// Returns everything that has to be stored, the oldest first.
    fn take_changed(&mut self) -> Vec<ChangedCounts> {
        let mut all = std::mem::take(&mut self.unstored);
        let (revision, rows) = self.counters.changed();
        all.push(ChangedCounts { server: self.server, revision, rows });
        if self.counters.is_set_back() {
            self.begin_again();
        }
        all
    }

    /// Notes that counts are stored.
    fn note_stored(&mut self, counts: &ChangedCounts) {
        if self.server == counts.server {
            self.counters.note_stored(counts.revision);
        }
    }

    /// Keeps counts that could not be stored. Those of the present number are in the counters.
    fn put_back(&mut self, counts: ChangedCounts) {
        if self.server != counts.server && self.unstored.len() < MAX_UNSTORED {
            self.unstored.push(counts);
        }
    }

    /// Counts something in the totals of a namespace, and under each tag.
    fn count<'a>(
        &mut self,
        counter: Counter,
        namespace: NamespaceId,
        tags: impl IntoIterator<Item = &'a str>,
        at: DateTime<Utc>,
    ) {
        let add = |counts: &mut Counts| counts.add(counter);
        self.counters.change_total(namespace, at, add);
        for tag in tags {
            self.counters.change_tag(namespace, tag, at, add);
        }
    }

    fn count_completion(&mut self, event: EventKey, completed_at: DateTime<Utc>) {
        self.counters.change_total(event.namespace, completed_at, |counts| counts.add(Counter::Completed));
        let completion = UnresolvedCompletion { event, completed_at };
        match self.claims.take(event) {
            Some(claim) => self.resolve(completion, &claim),
            None if self.unresolved.len() < MAX_UNRESOLVED => self.unresolved.push(completion),
            None => {}
        }
    }

    /// Adds what is now known of a completion.
    fn resolve(&mut self, UnresolvedCompletion { event, completed_at }: UnresolvedCompletion, claim: &RememberedClaim) {
        let milliseconds = (completed_at - claim.published_at).as_seconds_f64() * 1000.0;
        self.counters.change_total(event.namespace, completed_at, |counts| counts.latencies.observe(milliseconds));
        for tag in claim.tags.split(',').filter(|tag| !tag.is_empty()) {
            self.counters.change_tag(event.namespace, tag, completed_at, |counts| {
                counts.add(Counter::Completed);
                counts.latencies.observe(milliseconds);
            });
        }
    }
}

impl Stats {
    /// Counts the events of a publication that were stored.
    pub(crate) fn count_published(&self, events: &[NamespacedEvent<'_>], stored: &[StoredEvent]) {
        let mut state = self.lock();
        for (new, stored) in events.iter().zip(stored).filter(|(_, stored)| stored.is_stored) {
            let tags = new.event.tags.as_slice().iter().map(String::as_str);
            state.count(Counter::Published, new.namespace, tags, stored.created_at);
        }
    }

    /// Counts the events that workers of a namespace have claimed.
    pub(crate) fn count_claimed<'a>(&self, namespace: NamespaceId, rows: impl IntoIterator<Item = &'a EventRow>) {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return;
        }
        let mut state = self.lock();
        for EventRow { event, work } in rows {
            let tags = &event.tags.0;
            state.count(Counter::Claimed, namespace, tags.iter().map(String::as_str), work.updated_at);
            let claim = RememberedClaim { published_at: event.created_at, tags: tags.join(",").into() };
            state.claims.remember(namespace.event(event.id), claim);
        }
    }

    /// Counts deliveries that were completed without being loaded, each with the time. A push has no tags here.
    pub(crate) fn count_completed(&self, completed: impl IntoIterator<Item = (EventKey, bool, DateTime<Utc>)>) {
        let mut state = self.lock();
        for (event, is_push, at) in completed {
            match is_push {
                true => state.count(Counter::PushesSucceeded, event.namespace, [], at),
                false => state.count_completion(event, at),
            }
        }
    }

    /// Counts the changes of a transaction, each with its time.
    pub(crate) fn count_changes<'a>(&self, changes: impl IntoIterator<Item = (&'a CountedChange, DateTime<Utc>)>) {
        let mut changes = changes.into_iter().peekable();
        if changes.peek().is_none() {
            return;
        }
        let mut state = self.lock();
        for (change, at) in changes {
            if change.action == Action::Completed && !change.is_push {
                state.count_completion(change.event, at);
                continue;
            }
            let retried = (change.is_retried && !change.is_push).then_some(Counter::Retried);
            for counter in counter_of(change).into_iter().chain(retried) {
                state.count(counter, change.event.namespace, change.tags.iter().map(String::as_str), at);
            }
        }
    }

    /// Drops all counts and begins again under another number. Used after a restore of the database: what it knows of
    /// this server stays as it is.
    pub(crate) fn forget(&self) {
        *self.lock() = State::new();
    }

    fn take_unresolved(&self) -> Vec<UnresolvedCompletion> {
        std::mem::take(&mut self.lock().unresolved)
    }

    fn put_back(&self, unresolved: Vec<UnresolvedCompletion>) {
        let mut state = self.lock();
        let room = MAX_UNRESOLVED.saturating_sub(state.unresolved.len());
        state.unresolved.extend(unresolved.into_iter().take(room));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the counter of a change, if it has one.
fn counter_of(change: &CountedChange) -> Option<Counter> {
    match (change.action, change.is_push) {
        (Action::Completed, true) => Some(Counter::PushesSucceeded),
        (Action::Failed, true) => Some(Counter::PushesFailed),
        (Action::DeadLettered, _) => Some(Counter::DeadLettered),
        (Action::Failed, false) => Some(Counter::Failed),
        (Action::Released, false) => Some(Counter::Released),
        (Action::Reset, false) => Some(Counter::Reset),
        (Action::Expired, false) => Some(Counter::Expired),
        _ => None,
    }
}

fn random_number() -> i64 {
    getrandom::u64().unwrap_or_default() as i64
}

impl Engine {
    /// Stores what was counted since the last call. Returns the number of rows.
    pub async fn record_stats(&self) -> Result<usize, Error> {
        // What cannot be looked up does not keep the counts from being stored.
        let resolved = self.resolve_completions().await;
        let changed = self.stats().lock().take_changed();
        let (mut stored, mut result) = (0, resolved);
        for counts in changed {
            match self.write_stats(&counts).await {
                Ok(()) => {
                    stored += counts.rows.len();
                    self.stats().lock().note_stored(&counts);
                }
                Err(error) => {
                    self.stats().lock().put_back(counts);
                    result = Err(error);
                }
            }
        }
        result.map(|()| stored)
    }

    async fn write_stats(&self, ChangedCounts { server, revision, rows }: &ChangedCounts) -> Result<(), Error> {
        for rows in rows.chunks(ROWS_PER_STATEMENT) {
            let mut conn = self.database().connection().await?;
            record_stats(&mut conn, *server, *revision, rows).await?;
        }
        Ok(())
    }

    /// Looks up the completed events that were claimed at other servers. One that has been removed stays without tags.
    async fn resolve_completions(&self) -> Result<(), Error> {
        let unresolved = self.stats().take_unresolved();
        if unresolved.is_empty() {
            return Ok(());
        }
        let events: Vec<EventKey> = unresolved.iter().map(|completion| completion.event).collect();
        let reading = async {
            let mut conn = self.database().connection().await?;
            Ok::<_, Error>(find_published_events(&mut conn, &events).await?)
        };
        let found = match reading.await {
            Ok(found) => found,
            Err(error) => {
                self.stats().put_back(unresolved);
                return Err(error);
            }
        };
        let mut state = self.stats().lock();
        for event in found {
            let claim = RememberedClaim { published_at: event.created_at, tags: event.tags.into() };
            // Numbers begin at 1.
            if let Some(completion) = unresolved.get(event.ord as usize - 1) {
                state.resolve(*completion, &claim);
            }
        }
        Ok(())
    }
}
