//! Two walks along the ids of events, which remove those that finished long enough ago.
//!
//! No index knows when an event finished: a row that is found by a column that changes cannot be changed in
//! place. But ids are in the order of creation, and nothing finished before it was created. So the *front*
//! visits each event once, when it is a little older than the retention, and by then most events have finished long
//! enough ago. What it had to leave, such as events that took long, wait for a retry, or were revived, is found
//! by the *search*. It visits all events that are old enough again and again, from the lowest id.
//!
//! Positions are kept in memory. A server that starts begins at the lowest id.

use std::time::{Duration, Instant};

use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

use crate::domain::ids::EventId;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::retention::events::{RemovalStep, RemovedEvents, remove_events, remove_pushes};

use super::limited::{Removal, take_step};
use super::pace::StepRows;

/// The share of the retention that the front waits after it, so that events that took some time have also
/// finished long enough ago, and its limits.
const FRONT_DELAY_SHARE: f64 = 0.05;
const FRONT_DELAY_SECONDS: std::ops::RangeInclusive<f64> = 1.0..=600.0;

/// The time between two searches that begin at the lowest id. Others begin at the lowest id that was left,
/// because removed rows before it may still have to be stepped over. A replayed dead letter can bring an event
/// with a lower id back.
const SEARCH_ALL_EVERY: Duration = Duration::from_secs(60 * 60);

/// A position among the events of one namespace.
#[derive(Debug)]
pub(super) struct Walk {
    retention_seconds: f64,
    created_seconds: f64,
    after: i64,
    rows: StepRows,
    last_step: LastStep,
    last_step_at: Instant,
    /// The number of steps that have failed one after the other.
    failures: u32,
    /// By how much the walk was behind after the last step that told, and when that was.
    lag_seconds: f64,
    lag_known_at: Instant,
}

/// How the last step of a walk has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastStep {
    HasMore,
    CaughtUp,
    FoundNothing,
    /// Another server removes events.
    NotOurs,
    Failed,
}

/// For how long a walk rests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    /// When it has caught up, or another server removes events.
    pub short: Duration,
    /// When its last step has found nothing.
    pub long: Duration,
}

/// The longest rest of a walk whose steps fail. It is doubled with each failure, because a failing step may hold up the
/// steps of other namespaces for seconds.
const LONGEST_REST_OF_FAILURE: Duration = Duration::from_secs(60);

/// What one step has done.
#[derive(Debug)]
pub(super) struct Step {
    pub removed: RemovedEvents,
    pub took: Duration,
}

impl Step {
    /// Returns whether another step is worthwhile at once.
    pub(super) fn has_more(&self) -> bool {
        self.removed.is_ours && self.removed.has_more
    }

    /// Returns the age beyond the retention of the events that are still to be visited.
    pub(super) fn lag_seconds(&self) -> f64 {
        self.removed.lag_seconds.filter(|_| self.has_more()).unwrap_or(0.0)
    }

    /// Returns the number of removed rows by table.
    pub(super) fn removed_rows(&self) -> [(&'static str, u64); 3] {
        let RemovedEvents { events, pushes, tags, .. } = self.removed;
        [("events", events as u64), ("deliveries", (events + pushes) as u64), ("event_tags", tags as u64)]
    }
}

impl Walk {
    /// Returns a walk that stops at the events that were created within the retention or the front's delay.
    pub(super) fn front(retention: Duration) -> Self {
        let seconds = retention.as_secs_f64();
        let delay = (seconds * FRONT_DELAY_SHARE).clamp(*FRONT_DELAY_SECONDS.start(), *FRONT_DELAY_SECONDS.end());
        Walk { created_seconds: seconds + delay, ..Self::search(retention) }
    }

    /// Returns a walk that stops at the events that were created within the retention.
    pub(super) fn search(retention: Duration) -> Self {
        let seconds = retention.as_secs_f64();
        Walk {
            retention_seconds: seconds,
            created_seconds: seconds,
            after: 0,
            rows: StepRows::default(),
            last_step: LastStep::HasMore,
            last_step_at: Instant::now(),
            failures: 0,
            lag_seconds: 0.0,
            lag_known_at: Instant::now(),
        }
    }

    /// Returns whether the walk is to go on now.
    pub(super) fn is_due(&self, rest: Rest) -> bool {
        let rest = match self.last_step {
            LastStep::HasMore => Duration::ZERO,
            LastStep::CaughtUp | LastStep::NotOurs => rest.short,
            LastStep::FoundNothing => rest.long,
            LastStep::Failed => (rest.short * 2_u32.saturating_pow(self.failures - 1)).min(LONGEST_REST_OF_FAILURE),
        };
        self.last_step_at.elapsed() >= rest
    }

    /// Returns the age beyond the retention of the events that are still to be visited. It grows while steps fail, or
    /// while nothing is known about those of another server.
    pub(super) fn lag_seconds(&self) -> f64 {
        self.lag_seconds + self.unknown_seconds()
    }

    /// Returns the time since a step told by how much the walk is behind, or 0 if that was the last one.
    fn unknown_seconds(&self) -> f64 {
        match self.last_step {
            LastStep::NotOurs | LastStep::Failed => self.lag_known_at.elapsed().as_secs_f64(),
            LastStep::HasMore | LastStep::CaughtUp | LastStep::FoundNothing => 0.0,
        }
    }

    /// Records a failure.
    pub(super) fn note_failure(&mut self) {
        (self.last_step, self.last_step_at) = (LastStep::Failed, Instant::now());
        self.failures = self.failures.saturating_add(1);
    }

    fn note_success(&mut self, step: &Step) {
        let now = Instant::now();
        self.last_step = match step.removed {
            RemovedEvents { is_ours: false, .. } => LastStep::NotOurs,
            _ if step.has_more() => LastStep::HasMore,
            RemovedEvents { visited: 0, .. } => LastStep::FoundNothing,
            _ => LastStep::CaughtUp,
        };
        (self.last_step_at, self.failures) = (now, 0);
        if self.last_step != LastStep::NotOurs {
            (self.lag_known_at, self.lag_seconds) = (now, step.lag_seconds());
        }
    }

    /// Removes the next events. An event with too many pushes for one step is removed over several.
    pub(super) async fn step(&mut self, engine: &Engine, scope: &Scope) -> Result<Step, Error> {
        let step = self.try_step(engine, scope).await;
        match &step {
            Ok(step) => self.note_success(step),
            Err(_) => self.note_failure(),
        }
        step
    }

    async fn try_step(&mut self, engine: &Engine, scope: &Scope) -> Result<Step, Error> {
        let mut conn = engine.database().connection().await?;
        let began = Instant::now();
        let (retention_seconds, key_seconds) = (self.retention_seconds, engine.key_seconds());
        let (created_seconds, after) = (self.created_seconds, self.after);
        let events = Events { scope, retention_seconds, created_seconds, after, key_seconds };
        let mut removed = take_step(&mut conn, &mut self.rows, &events).await?;
        let mut done_to = removed.last_id.unwrap_or(after);
        if let Some(event_id) = removed.large_event_id {
            let pushes = Pushes { scope, retention_seconds, event_id };
            let pushes = take_step(&mut conn, &mut self.rows, &pushes).await?;
            removed.pushes += pushes;
            if pushes == 0 {
                removed.visited += 1;
                done_to = event_id.0;
            }
        }
        // Not before: if the pushes could not be removed, the same events are visited again.
        self.after = done_to;
        Ok(Step { removed, took: began.elapsed() })
    }
}

/// The events behind `after`.
struct Events<'a> {
    scope: &'a Scope,
    retention_seconds: f64,
    created_seconds: f64,
    after: i64,
    key_seconds: f64,
}

impl Removal for Events<'_> {
    type Removed = RemovedEvents;

    async fn remove(&self, conn: &mut AsyncPgConnection, max_rows: i64) -> QueryResult<RemovedEvents> {
        let Events { scope, retention_seconds, created_seconds, after, key_seconds } = *self;
        let step = RemovalStep { retention_seconds, created_seconds, after, max_rows, key_seconds };
        remove_events(conn, scope, &step).await
    }

    fn rows_of(removed: &RemovedEvents) -> i64 {
        removed.visited.max(removed.events + removed.pushes)
    }
}

/// Pushes of an event that has too many of them for one step.
struct Pushes<'a> {
    scope: &'a Scope,
    retention_seconds: f64,
    event_id: EventId,
}

impl Removal for Pushes<'_> {
    type Removed = i64;

    async fn remove(&self, conn: &mut AsyncPgConnection, max_rows: i64) -> QueryResult<i64> {
        remove_pushes(conn, self.scope, self.retention_seconds, self.event_id, max_rows).await
    }

    fn rows_of(pushes: &i64) -> i64 {
        *pushes
    }
}

/// The search for events that the front has left.
#[derive(Debug)]
pub(super) struct Search {
    walk: Walk,
    /// Where the first event was left in this pass.
    first_left: Option<i64>,
    began_at_lowest: Instant,
}

impl Search {
    pub(super) fn new(retention: Duration) -> Self {
        Search { walk: Walk::search(retention), first_left: None, began_at_lowest: Instant::now() }
    }

    /// Returns whether the search is to go on now.
    pub(super) fn is_due(&self, rest: Rest) -> bool {
        self.walk.is_due(rest)
    }

    /// Returns the time for which the search has failed, or was another server's. How late the events are that it has not
    /// reached is not known.
    pub(super) fn lag_seconds(&self) -> f64 {
        self.walk.unknown_seconds()
    }

    /// Records a failure.
    pub(super) fn note_failure(&mut self) {
        self.walk.note_failure();
    }

    /// Removes the next events. After the last step of a pass, which has no more, the next pass begins.
    pub(super) async fn step(&mut self, engine: &Engine, scope: &Scope) -> Result<Step, Error> {
        let began_at = self.walk.after;
        let step = self.walk.step(engine, scope).await?;
        if step.removed.events < step.removed.visited {
            self.first_left.get_or_insert(began_at);
        }
        // A step that another server's step came before has not reached the end.
        if step.removed.is_ours && !step.has_more() {
            self.begin_again();
        }
        Ok(step)
    }

    fn begin_again(&mut self) {
        self.walk.after = self.first_left.take().unwrap_or(self.walk.after);
        if self.began_at_lowest.elapsed() >= SEARCH_ALL_EVERY {
            self.began_at_lowest = Instant::now();
            self.walk.after = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(visited: i64, has_more: bool) -> Step {
        let removed = RemovedEvents {
            is_ours: true,
            visited,
            events: visited,
            pushes: 0,
            tags: 0,
            last_id: None,
            large_event_id: None,
            has_more,
            lag_seconds: Some(30.0),
        };
        Step { removed, took: Duration::ZERO }
    }

    #[test]
    fn the_lag_grows_while_steps_fail() {
        let mut walk = Walk::front(Duration::from_secs(60));
        walk.note_success(&step(10, true));
        assert_eq!(walk.lag_seconds(), 30.0);
        walk.lag_known_at -= Duration::from_secs(100);
        assert_eq!(walk.lag_seconds(), 30.0, "it has more, and goes on");
        walk.note_failure();
        assert!(walk.lag_seconds() >= 130.0);
        walk.note_success(&step(10, false));
        assert_eq!(walk.lag_seconds(), 0.0);
    }

    #[test]
    fn the_lag_grows_while_another_server_has_every_step() {
        let mut walk = Walk::front(Duration::from_secs(60));
        walk.note_success(&step(10, true));
        let mut others = step(0, false);
        others.removed.is_ours = false;
        walk.note_success(&others);
        walk.lag_known_at -= Duration::from_secs(100);
        assert!(walk.lag_seconds() >= 130.0, "what the other one does is not known");
        walk.note_success(&step(10, false));
        assert_eq!(walk.lag_seconds(), 0.0);
    }

    #[test]
    fn a_walk_rests_by_what_its_last_step_has_found() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let rest = Rest { short: second, long: minute };
        let mut walk = Walk::front(minute);
        let mut rests_for = |note: &dyn Fn(&mut Walk), time: Duration| {
            note(&mut walk);
            assert_eq!(walk.is_due(rest), time.is_zero());
            walk.last_step_at -= time;
            assert!(walk.is_due(rest));
        };
        rests_for(&|_| (), Duration::ZERO);
        rests_for(&|walk| walk.note_success(&step(10, true)), Duration::ZERO);
        rests_for(&|walk| walk.note_success(&step(10, false)), second);
        rests_for(&|walk| walk.note_success(&step(0, false)), minute);
        rests_for(&Walk::note_failure, second);
        rests_for(&Walk::note_failure, second * 2);
        (0..40).for_each(|_| walk.note_failure());
        assert!(!walk.is_due(rest));
        walk.last_step_at -= LONGEST_REST_OF_FAILURE;
        assert!(walk.is_due(rest));
    }
}
