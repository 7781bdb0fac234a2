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

use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::retention::events::{RemovalStep, RemovedEvents, remove_events, remove_pushes};

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
    /// The time before which nothing is to be expected, if the last step has found nothing.
    rests_until: Option<Instant>,
}

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
            rests_until: None,
        }
    }

    /// Returns whether the walk is to go on now.
    pub(super) fn is_due(&self) -> bool {
        self.rests_until.is_none_or(|until| Instant::now() >= until)
    }

    /// Lets the walk rest after a step that has found nothing.
    pub(super) fn rest_after(&mut self, step: &Step, rest: Duration) {
        let has_found_nothing = step.removed.is_ours && step.removed.visited == 0;
        self.rests_until = has_found_nothing.then(|| Instant::now() + rest);
    }

    /// Removes the next events. An event with too many pushes for one step is removed over several.
    pub(super) async fn step(&mut self, engine: &Engine, scope: &Scope) -> Result<Step, Error> {
        let step = RemovalStep {
            retention_seconds: self.retention_seconds,
            created_seconds: self.created_seconds,
            after: self.after,
            max_rows: self.rows.0,
            key_seconds: engine.key_seconds(),
        };
        let mut conn = engine.database().connection().await?;
        let began = Instant::now();
        let mut removed = remove_events(&mut conn, scope, &step).await?;
        let took = began.elapsed();
        self.rows.adapt(removed.events + removed.pushes, took);
        self.after = removed.last_id.unwrap_or(self.after);
        if let Some(event_id) = removed.large_event_id {
            let part_began = Instant::now();
            let pushes = remove_pushes(&mut conn, scope, self.retention_seconds, event_id, step.max_rows).await?;
            self.rows.adapt(pushes, part_began.elapsed());
            removed.pushes += pushes;
            if pushes == 0 {
                self.after = event_id.0;
            }
        }
        Ok(Step { removed, took: began.elapsed() })
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
    pub(super) fn is_due(&self) -> bool {
        self.walk.is_due()
    }

    /// Lets the search rest after a step that has found nothing.
    pub(super) fn rest_after(&mut self, step: &Step, rest: Duration) {
        self.walk.rest_after(step, rest);
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
