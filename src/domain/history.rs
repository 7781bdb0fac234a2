//! Histories of a database: which epoch an id belongs to, and whether a cursor is still valid.
//!
//! A history begins when the schema is created. A new one begins when the database continues from an
//! earlier state, after a restore or a failover. All ids of a later history are higher than the ids
//! of the earlier ones, so the first ids of each history show to which one an id belongs.

use crate::domain::ids::EventId;

/// The minimum jump of the sequences when a history begins: 2^36, as in `waybill.begin_history`.
pub const JUMP: i64 = 68_719_476_736;

/// The length of an epoch in characters.
pub const EPOCH_CHARS: usize = 8;

/// One history of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// A random name.
    pub epoch: String,
    /// The first id of events, deliveries, subscriptions, dead letters and operations.
    pub first_id: i64,
    /// The first id of log entries.
    pub first_log_id: i64,
}

/// The sequence that the position of a cursor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// Ids of events, deliveries, subscriptions, dead letters and operations.
    Ids,
    /// Ids of log entries and audit entries.
    LogIds,
}

impl History {
    fn first(&self, numbers: Numbers) -> i64 {
        match numbers {
            Numbers::Ids => self.first_id,
            Numbers::LogIds => self.first_log_id,
        }
    }
}

/// A snapshot of the histories of a database.
#[derive(Debug, Default)]
pub struct Histories {
    /// Oldest first.
    rows: Vec<History>,
    /// Ids from this one on may belong to a history that began after the snapshot.
    certain_below: i64,
}

impl Histories {
    /// Creates a snapshot from `rows`, oldest first. The id `seen`, if given, was assigned before the
    /// rows were read.
    pub fn new(rows: Vec<History>, seen: Option<i64>) -> Self {
        let next_begins_above = rows.last().map_or(0, |last| last.first_id.saturating_add(JUMP));
        let certain_below = next_begins_above.max(seen.map_or(0, |id| id.saturating_add(1)));
        Histories { rows, certain_below }
    }

    /// Returns the current history, or `None` if there are no rows.
    pub fn present(&self) -> Option<&History> {
        self.rows.last()
    }

    /// Returns the epoch of an event, or `None` if the rows must be read again to decide.
    pub fn epoch_of(&self, event_id: EventId) -> Option<&str> {
        if event_id.0 >= self.certain_below {
            return None;
        }
        self.rows.iter().rev().find(|history| history.first_id <= event_id.0).map(|history| history.epoch.as_str())
    }

    /// Returns whether a position may belong to a history that began after the rows were read.
    pub fn may_be_later(&self, numbers: Numbers, position: i64) -> bool {
        let next_begins_above = self.rows.last().map_or(0, |last| last.first(numbers).saturating_add(JUMP));
        match numbers {
            Numbers::Ids => position >= self.certain_below,
            Numbers::LogIds => position >= next_begins_above,
        }
    }

    /// Returns whether a cursor that was issued in `epoch` is still valid. A later history does not
    /// invalidate a cursor below its first id: the ids up to the cursor keep their meaning. An epoch
    /// that is not among the rows was issued by a database that has since been restored to an
    /// earlier state.
    pub fn holds(&self, epoch: &str, numbers: Numbers, position: i64) -> bool {
        let Some(index) = self.rows.iter().position(|history| history.epoch == epoch) else { return false };
        self.rows.get(index + 1).is_none_or(|next| position < next.first(numbers))
    }
}

/// Returns whether a text has the form of an epoch.
pub fn is_epoch(text: &str) -> bool {
    text.len() == EPOCH_CHARS && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(epoch: &str, first_id: i64, first_log_id: i64) -> History {
        History { epoch: epoch.to_owned(), first_id, first_log_id }
    }

    fn two(seen: Option<i64>) -> Histories {
        Histories::new(vec![history("first", 0, 0), history("second", JUMP + 100, JUMP + 7)], seen)
    }

    #[test]
    fn an_event_keeps_the_epoch_in_which_it_was_published() {
        let histories = two(None);
        assert_eq!(histories.epoch_of(EventId(1)), Some("first"));
        assert_eq!(histories.epoch_of(EventId(JUMP + 99)), Some("first"));
        assert_eq!(histories.epoch_of(EventId(JUMP + 100)), Some("second"));
    }

    #[test]
    fn the_epoch_of_an_id_that_may_belong_to_a_later_history_is_unknown() {
        let last = JUMP + 100 + JUMP - 1;
        assert_eq!(two(None).epoch_of(EventId(last)), Some("second"));
        assert_eq!(two(None).epoch_of(EventId(last + 1)), None);
        assert_eq!(two(Some(last + 1)).epoch_of(EventId(last + 1)), Some("second"));
        assert_eq!(two(Some(last + 1)).epoch_of(EventId(last + 2)), None);
        assert_eq!(Histories::default().epoch_of(EventId(1)), None);
    }

    #[test]
    fn a_cursor_is_valid_in_its_own_history_and_later_ones() {
        let histories = two(None);
        assert!(histories.holds("first", Numbers::Ids, 50));
        assert!(histories.holds("first", Numbers::LogIds, 50));
        assert!(histories.holds("second", Numbers::Ids, 50));
        assert!(histories.holds("second", Numbers::Ids, JUMP + 500));
        assert!(!histories.holds("first", Numbers::Ids, JUMP + 100));
        assert!(!histories.holds("first", Numbers::LogIds, JUMP + 7));
        assert!(!histories.holds("lost", Numbers::Ids, 50));
    }

    #[test]
    fn an_epoch_is_eight_characters_out_of_32() {
        assert!(is_epoch("abcxyz27"));
        for text in ["", "abcxyz2", "abcxyz277", "abcxyz28", "Abcxyz27", "abcxyz2ü"] {
            assert!(!is_epoch(text), "{text}");
        }
    }
}
