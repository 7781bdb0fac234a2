//! How large the steps of a removal are, and how long it pauses between them.
//!
//! A step must be short, because it holds locks. A step that removes nothing is work for nothing, and a step at
//! full load takes time from workers. But removal that is too slow lets tables grow without end. So steps are
//! sized by the time that they take, a search that finds little pauses for long, and workers have the right of
//! way only while removal keeps up.
//!
//! Not all of this time depends on the number of rows. Smaller steps would pay the rest more often: removal would become
//! slower, and no step shorter. So round trips do not count, and no step gets smaller than the first one only to be
//! shorter. Below that, steps are made smaller by a cancellation alone.

use std::time::Duration;

use crate::store::connection::database::STATEMENT_LIMIT;
use crate::store::retention::events::RemovedEvents;

/// The time that a step should take. A busy machine makes single steps several times as long.
const STEP_TIME: Duration = Duration::from_millis(10);

/// The time after which a step is cancelled, because its locks hold others up. It is done again with half of the rows.
const MAX_STEP_TIME: Duration = Duration::from_millis(50);

/// The number of rows of the first, the smallest and the largest step. Only steps that were cancelled are smaller than
/// the first.
const FIRST_ROWS: i64 = 100;
const MIN_ROWS: i64 = 10;
const MAX_ROWS: i64 = 500;

/// A search that finds nothing pauses for this many times as long as a step took, and at most for so long: other
/// namespaces wait for their turn.
const SEARCH_PAUSE_FACTOR: u32 = 50;
const MAX_SEARCH_PAUSE: Duration = Duration::from_secs(1);

/// While workers need the database, removal pauses for this many times as long as a step took.
const YIELD_FACTOR: f64 = 6.0;

/// The lag at which removal does not yield any longer.
const MAX_LAG_SECONDS: f64 = 10.0;

/// The maximum length of a pause for workers.
const MAX_YIELD: Duration = Duration::from_millis(200);

/// The number of rows of the next step.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepRows {
    count: i64,
    /// The shortest time that the database took to answer a statement that does nothing.
    round_trip: Option<Duration>,
}

impl Default for StepRows {
    fn default() -> Self {
        StepRows { count: FIRST_ROWS, round_trip: None }
    }
}

impl StepRows {
    pub(super) fn count(self) -> i64 {
        self.count
    }

    /// Notes how long the database took to answer a statement that does nothing. A busy machine takes longer than the
    /// network, so the shortest time counts.
    pub(super) fn note_round_trip(&mut self, took: Duration) {
        self.round_trip = Some(self.round_trip.map_or(took, |shortest| shortest.min(took)));
    }

    /// Adapts to a step that has visited or removed `done` rows in `took`. A step that did little says nothing about
    /// the time that it takes to do much. One that only visited many is followed by a larger one, which is cancelled if
    /// it finds too much to remove.
    pub(super) fn adapt(&mut self, done: i64, took: Duration) {
        let took = took.saturating_sub(self.round_trip.unwrap_or_default());
        if took > STEP_TIME && self.count > FIRST_ROWS {
            self.count = (self.count / 2).max(FIRST_ROWS);
        } else if took < self.short_time() && done * 2 >= self.count {
            self.count = (self.count * 2).min(MAX_ROWS);
        }
    }

    /// Returns the time below which a step of this size is followed by a larger one. After a cancellation it is longer:
    /// twice as many rows must only stay well below the limit.
    fn short_time(self) -> Duration {
        if self.count < FIRST_ROWS { MAX_STEP_TIME / 3 } else { STEP_TIME / 2 }
    }

    pub(super) fn halve(&mut self) {
        self.count = (self.count / 2).max(MIN_ROWS);
    }

    /// Returns whether a step of this size is cancelled when it takes too long. The smallest step is not: however slow
    /// the database is, there is progress.
    pub(super) fn is_limited(self) -> bool {
        self.count > MIN_ROWS
    }

    /// Returns the time that a step of this size may take.
    pub(super) fn time_limit(self) -> Duration {
        if self.is_limited() { MAX_STEP_TIME } else { STATEMENT_LIMIT }
    }
}

/// Returns the pause of a search after a step: the longer, the fewer of the visited events it removed.
pub(super) fn pause_of_search(removed: &RemovedEvents, took: Duration) -> Duration {
    if removed.visited == 0 {
        return Duration::ZERO;
    }
    let waste = 1.0 - removed.events as f64 / removed.visited as f64;
    (took * SEARCH_PAUSE_FACTOR).mul_f64(waste).min(MAX_SEARCH_PAUSE)
}

/// Returns the pause for workers after a step. It is shorter while removal lags behind.
pub(super) fn pause_for_workers(lag_seconds: f64, took: Duration) -> Duration {
    let patience = (1.0 - lag_seconds / MAX_LAG_SECONDS).clamp(0.0, 1.0);
    took.mul_f64(YIELD_FACTOR * patience).min(MAX_YIELD)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(2);

    fn step(visited: i64, events: i64) -> RemovedEvents {
        RemovedEvents {
            is_ours: true,
            visited,
            events,
            pushes: 0,
            tags: 0,
            last_id: None,
            large_event_id: None,
            has_more: true,
            lag_seconds: None,
        }
    }

    /// Returns the size after ten full steps that each take `took`.
    fn after_steps(mut rows: StepRows, took: Duration) -> i64 {
        for _ in 0..10 {
            rows.adapt(rows.count, took);
        }
        rows.count
    }

    fn step_rows(count: i64) -> StepRows {
        StepRows { count, ..StepRows::default() }
    }

    #[test]
    fn steps_grow_while_they_are_short_and_shrink_when_they_are_long() {
        assert_eq!(after_steps(StepRows::default(), SHORT), MAX_ROWS);
        let mut rows = step_rows(MAX_ROWS);
        rows.adapt(0, STEP_TIME * 2);
        assert_eq!(rows.count, MAX_ROWS / 2);
    }

    /// What takes so long may not depend on the number of rows.
    #[test]
    fn only_a_cancellation_makes_steps_smaller_than_the_first() {
        assert_eq!(after_steps(step_rows(MAX_ROWS), STEP_TIME * 4), FIRST_ROWS);
        let mut rows = StepRows::default();
        rows.halve();
        assert_eq!(rows.count, FIRST_ROWS / 2);
    }

    #[test]
    fn steps_grow_again_after_a_cancellation_unless_they_would_be_cancelled_again() {
        assert!(after_steps(step_rows(MIN_ROWS), STEP_TIME) >= FIRST_ROWS);
        assert_eq!(after_steps(step_rows(MIN_ROWS), MAX_STEP_TIME / 2), MIN_ROWS);
    }

    #[test]
    fn the_time_of_a_round_trip_makes_no_step_smaller() {
        let mut rows = StepRows::default();
        for round_trip in [STEP_TIME * 3, STEP_TIME * 2, STEP_TIME * 3] {
            rows.note_round_trip(round_trip);
        }
        assert_eq!(after_steps(rows, STEP_TIME * 2 + SHORT), MAX_ROWS);
        assert_eq!(after_steps(rows, STEP_TIME * 4), FIRST_ROWS);
    }

    #[test]
    fn the_smallest_step_alone_may_take_long() {
        assert_eq!(StepRows::default().time_limit(), MAX_STEP_TIME);
        let mut rows = step_rows(MIN_ROWS + 1);
        assert_eq!(rows.time_limit(), MAX_STEP_TIME);
        rows.halve();
        assert_eq!((rows.count, rows.time_limit()), (MIN_ROWS, STATEMENT_LIMIT));
    }

    #[test]
    fn a_step_that_did_little_does_not_make_the_next_one_larger() {
        let mut rows = StepRows::default();
        rows.adapt(FIRST_ROWS / 2 - 1, SHORT);
        assert_eq!(rows.count, FIRST_ROWS);
    }

    #[test]
    fn a_search_pauses_in_proportion_to_what_it_read_for_nothing() {
        assert_eq!(pause_of_search(&step(100, 100), SHORT), Duration::ZERO);
        assert_eq!(pause_of_search(&step(100, 0), SHORT), SHORT * SEARCH_PAUSE_FACTOR);
        assert_eq!(pause_of_search(&step(100, 50), SHORT), SHORT * SEARCH_PAUSE_FACTOR / 2);
        assert_eq!(pause_of_search(&step(0, 0), SHORT), Duration::ZERO);
        assert_eq!(pause_of_search(&step(100, 0), Duration::from_secs(4)), MAX_SEARCH_PAUSE);
    }

    #[test]
    fn removal_yields_to_workers_only_while_it_keeps_up() {
        assert_eq!(pause_for_workers(0.0, SHORT), SHORT * 6);
        assert_eq!(pause_for_workers(MAX_LAG_SECONDS / 2.0, SHORT), SHORT * 3);
        assert_eq!(pause_for_workers(MAX_LAG_SECONDS * 9.0, SHORT), Duration::ZERO);
        assert_eq!(pause_for_workers(0.0, Duration::from_secs(1)), MAX_YIELD);
    }
}
