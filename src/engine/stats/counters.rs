//! The counts of this server, by namespace, tag, minute and hour, until they are stored.
//!
//! Whole values are stored and not increments, so a count that was stored stays in memory as long as it may still grow:
//! for [`LATE_MINUTES`] after the end of its minute or hour. What is counted even later counts for the oldest minute
//! that is left.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use crate::domain::ids::NamespaceId;
use crate::domain::stats::Counts;
use crate::store::tables::stats::{Period, StatsRow};

/// The maximum number of tags of a namespace that this server counts separately in an hour. Events of further tags are
/// in the totals of the namespace only.
const TAGS_PER_NAMESPACE: usize = 100;

/// The same for all namespaces. A namespace may have as many as there is room for others.
const MAX_TAGS: usize = 2_000;

/// Minutes after which nothing is counted for a minute any more. Times come from the database, and no transaction takes
/// so long.
const LATE_MINUTES: i64 = 5;

/// Minutes by which a time must lie behind the latest one to show that the clock of the database was set back.
const SET_BACK_MINUTES: i64 = 60;

/// Minutes, and hours, of which counts are kept that could not be stored.
const UNSTORED_MINUTES: i64 = 60;
const UNSTORED_HOURS: i64 = 24;

/// The counts of all namespaces.
#[derive(Default)]
pub(super) struct Counters {
    namespaces: HashMap<NamespaceId, NamespaceSeries>,
    /// The number of tags of all namespaces.
    tags: usize,
    /// The latest minute in which something was counted, in minutes since the epoch.
    latest: i64,
    /// Whether the clock has been set back since. What is counted then counts for a minute that is still to come.
    is_set_back: bool,
    /// The number of the changes since the counts were last read, from 0.
    revision: i32,
    /// The revision up to which everything is stored.
    stored: Option<i32>,
}

#[derive(Default)]
struct NamespaceSeries {
    total: Series,
    tags: HashMap<Box<str>, Series>,
}

/// The latest minutes and hours of a tag, or of a namespace.
#[derive(Default)]
struct Series {
    minutes: Vec<CountedPeriod>,
    hours: Vec<CountedPeriod>,
}

/// A minute or an hour.
struct CountedPeriod {
    /// The number of minutes, or hours, since the epoch.
    number: i64,
    /// The revision of the latest change.
    changed_in: i32,
    counts: Counts,
}

impl Counters {
    /// Changes the counts of a namespace.
    pub(super) fn change_total(&mut self, namespace: NamespaceId, at: DateTime<Utc>, change: impl Fn(&mut Counts)) {
        let minute = self.minute_of(at);
        self.namespaces.entry(namespace).or_default().total.change(minute, self.revision, change);
    }

    /// Changes the counts of a tag, unless there are too many tags.
    pub(super) fn change_tag(
        &mut self,
        namespace: NamespaceId,
        tag: &str,
        at: DateTime<Utc>,
        change: impl Fn(&mut Counts),
    ) {
        let minute = self.minute_of(at);
        let tags = &mut self.namespaces.entry(namespace).or_default().tags;
        if let Some(series) = tags.get_mut(tag) {
            return series.change(minute, self.revision, change);
        }
        if tags.len() < TAGS_PER_NAMESPACE.min(MAX_TAGS.saturating_sub(self.tags)) {
            self.tags += 1;
            tags.entry(tag.into()).or_default().change(minute, self.revision, change);
        }
    }

    /// Returns the minute in which something counts that happened at this time.
    fn minute_of(&mut self, at: DateTime<Utc>) -> i64 {
        let minute = at.timestamp().div_euclid(60);
        self.is_set_back |= minute < self.latest - SET_BACK_MINUTES;
        self.latest = self.latest.max(minute);
        minute.max(self.latest - LATE_MINUTES)
    }

    /// Returns whether the clock of the database was set back far enough to count everything for a wrong time.
    pub(super) fn is_set_back(&self) -> bool {
        self.is_set_back
    }

    /// Returns everything that has changed since it was stored, and its revision.
    pub(super) fn changed(&mut self) -> (i32, Vec<StatsRow>) {
        self.forget_old();
        let revision = self.revision;
        self.revision += 1;
        let mut rows = Vec::new();
        for (namespace, of_namespace) in &self.namespaces {
            of_namespace.total.add_changed(self.stored, *namespace, "", &mut rows);
            for (tag, series) in &of_namespace.tags {
                series.add_changed(self.stored, *namespace, tag, &mut rows);
            }
        }
        (revision, rows)
    }

    /// Records that everything up to a revision is stored.
    pub(super) fn note_stored(&mut self, revision: i32) {
        self.stored = self.stored.max(Some(revision));
    }

    /// Drops the periods that are stored and to which nothing is added any more, and those that could not be stored for
    /// too long.
    fn forget_old(&mut self) {
        let (latest, stored) = (self.latest, self.stored);
        self.namespaces.retain(|_, of_namespace| {
            of_namespace.total.forget_old(latest, stored);
            of_namespace.tags.retain(|_, series| {
                series.forget_old(latest, stored);
                !series.is_empty()
            });
            !of_namespace.total.is_empty() || !of_namespace.tags.is_empty()
        });
        self.tags = self.namespaces.values().map(|of_namespace| of_namespace.tags.len()).sum();
    }
}

impl Series {
    fn change(&mut self, minute: i64, revision: i32, change: impl Fn(&mut Counts)) {
        change(counts_of(&mut self.minutes, minute, revision));
        change(counts_of(&mut self.hours, minute.div_euclid(60), revision));
    }

    fn add_changed(&self, stored: Option<i32>, namespace: NamespaceId, tag: &str, rows: &mut Vec<StatsRow>) {
        let changed = |period: &&CountedPeriod| Some(period.changed_in) > stored;
        let row = |period: &CountedPeriod, kind: fn(i64) -> Period| StatsRow {
            period: kind(period.number),
            namespace,
            tag: tag.to_owned(),
            counts: period.counts.clone(),
        };
        rows.extend(self.minutes.iter().filter(changed).map(|period| row(period, Period::Minute)));
        rows.extend(self.hours.iter().filter(changed).map(|period| row(period, Period::Hour)));
    }

    fn forget_old(&mut self, latest: i64, stored: Option<i32>) {
        let is_stored = |period: &CountedPeriod| Some(period.changed_in) <= stored;
        let oldest = latest - LATE_MINUTES;
        self.minutes.retain(|period| match is_stored(period) {
            true => period.number >= oldest,
            false => period.number > latest - UNSTORED_MINUTES,
        });
        self.hours.retain(|period| match is_stored(period) {
            true => period.number >= oldest.div_euclid(60),
            false => period.number > latest.div_euclid(60) - UNSTORED_HOURS,
        });
    }

    fn is_empty(&self) -> bool {
        self.minutes.is_empty() && self.hours.is_empty()
    }
}

/// Returns the counts of a period to change them. The latest period is the last.
fn counts_of(periods: &mut Vec<CountedPeriod>, number: i64, revision: i32) -> &mut Counts {
    let index = periods.iter().rposition(|period| period.number == number).unwrap_or_else(|| {
        periods.push(CountedPeriod { number, changed_in: revision, counts: Counts::default() });
        periods.len() - 1
    });
    periods[index].changed_in = revision;
    &mut periods[index].counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::stats::Counter;

    fn at(minute: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(minute * 60, 0).unwrap()
    }

    fn publish(counters: &mut Counters, namespace: i32, tags: &[&str], minute: i64) {
        let add = |counts: &mut Counts| counts.add(Counter::Published);
        counters.change_total(NamespaceId(namespace), at(minute), add);
        tags.iter().for_each(|tag| counters.change_tag(NamespaceId(namespace), tag, at(minute), add));
    }

    /// Returns what has changed: the namespace, the tag, the period and the number of published events.
    fn changed(counters: &mut Counters) -> (i32, Vec<(i32, String, Period, i32)>) {
        let (revision, rows) = counters.changed();
        let mut rows: Vec<_> = rows
            .into_iter()
            .map(|row| (row.namespace.0, row.tag, row.period, row.counts.get(Counter::Published)))
            .collect();
        rows.sort();
        (revision, rows)
    }

    fn store(counters: &mut Counters) -> usize {
        let (revision, rows) = counters.changed();
        counters.note_stored(revision);
        rows.len()
    }

    #[test]
    fn an_event_counts_once_in_total_and_under_each_of_its_tags() {
        let mut counters = Counters::default();
        publish(&mut counters, 1, &["a", "b"], 61);
        publish(&mut counters, 1, &["a"], 61);
        publish(&mut counters, 2, &[], 61);
        let (_, rows) = changed(&mut counters);
        let of = |namespace, tag: &str, count| {
            [Period::Minute(61), Period::Hour(1)].map(|period| (namespace, tag.to_owned(), period, count))
        };
        assert_eq!(rows, [of(1, "", 2), of(1, "a", 2), of(1, "b", 1), of(2, "", 1)].concat());
    }

    #[test]
    fn only_what_has_changed_is_written_and_with_its_whole_value() {
        let mut counters = Counters::default();
        publish(&mut counters, 1, &["a"], 60);
        assert_eq!(store(&mut counters), 4);
        assert_eq!(store(&mut counters), 0);
        publish(&mut counters, 1, &[], 60);
        let (_, rows) = changed(&mut counters);
        assert_eq!(rows, [(1, String::new(), Period::Minute(60), 2), (1, String::new(), Period::Hour(1), 2)]);
    }

    #[test]
    fn what_was_not_stored_and_what_changes_meanwhile_is_written_the_next_time() {
        let mut counters = Counters::default();
        publish(&mut counters, 1, &[], 60);
        let (failed, _) = changed(&mut counters);
        publish(&mut counters, 1, &[], 60);
        let (revision, rows) = changed(&mut counters);
        assert!(revision > failed);
        assert_eq!(rows[0].3, 2);
        publish(&mut counters, 1, &[], 60);
        counters.note_stored(revision);
        counters.note_stored(failed);
        assert_eq!(changed(&mut counters).1[0].3, 3, "it was counted after the rows were read");
    }

    #[test]
    fn a_late_count_never_replaces_a_value_that_was_forgotten() {
        let mut counters = Counters::default();
        publish(&mut counters, 1, &[], 59);
        store(&mut counters);
        publish(&mut counters, 1, &[], 59 + LATE_MINUTES);
        store(&mut counters);
        publish(&mut counters, 1, &[], 59);
        assert_eq!(changed(&mut counters).1[0], (1, String::new(), Period::Minute(59), 2), "it is still known");
        publish(&mut counters, 1, &[], 60 + LATE_MINUTES);
        store(&mut counters);
        store(&mut counters);
        publish(&mut counters, 1, &[], 59);
        let (_, rows) = changed(&mut counters);
        assert_eq!(rows[0], (1, String::new(), Period::Minute(60), 1), "it counts for the oldest minute that is left");
        assert_eq!(rows[1], (1, String::new(), Period::Hour(1), 3));
    }

    #[test]
    fn what_has_ended_is_forgotten() {
        let mut counters = Counters::default();
        publish(&mut counters, 1, &["a"], 60);
        store(&mut counters);
        publish(&mut counters, 2, &[], 120 + LATE_MINUTES);
        store(&mut counters);
        store(&mut counters);
        assert_eq!((counters.namespaces.len(), counters.tags), (1, 0));
    }

    #[test]
    fn what_cannot_be_stored_is_kept_for_an_hour() {
        let mut counters = Counters::default();
        for minute in 0..100 {
            publish(&mut counters, 1, &[], 6_000 + minute);
            counters.changed();
        }
        let (_, rows) = counters.changed();
        let minutes = rows.iter().filter(|row| matches!(row.period, Period::Minute(_))).count();
        assert_eq!(minutes as i64, UNSTORED_MINUTES);
        let hours: i32 = rows.iter().filter(|row| matches!(row.period, Period::Hour(_))).map(published).sum();
        assert_eq!(hours, 100);
    }

    fn published(row: &StatsRow) -> i32 {
        row.counts.get(Counter::Published)
    }

    #[test]
    fn tags_beyond_the_limit_count_in_total_only() {
        let mut counters = Counters::default();
        for tag in 0..TAGS_PER_NAMESPACE + 50 {
            publish(&mut counters, 1, &[&format!("t{tag}")], 60);
        }
        publish(&mut counters, 1, &["t0"], 60);
        let (_, rows) = counters.changed();
        let minutes: Vec<&StatsRow> = rows.iter().filter(|row| matches!(row.period, Period::Minute(_))).collect();
        assert_eq!(minutes.len(), TAGS_PER_NAMESPACE + 1);
        let of = |tag: &str| minutes.iter().find(|row| row.tag == tag).map(|row| published(row));
        assert_eq!((of(""), of("t0"), of("t149")), (Some(TAGS_PER_NAMESPACE as i32 + 51), Some(2), None));
    }

    #[test]
    fn many_namespaces_with_many_tags_leave_room_for_others() {
        let mut counters = Counters::default();
        for namespace in 1..=100 {
            for tag in 0..TAGS_PER_NAMESPACE {
                publish(&mut counters, namespace, &[&format!("t{tag}")], 60);
            }
        }
        assert!(counters.tags <= MAX_TAGS);
        let of = |namespace| counters.namespaces[&NamespaceId(namespace)].tags.len();
        assert_eq!((of(1), of(19)), (TAGS_PER_NAMESPACE, TAGS_PER_NAMESPACE));
        assert!(of(21) > 0 && of(21) < TAGS_PER_NAMESPACE, "{}", of(21));
    }
}
