//! Histories of a database: which epoch a number belongs to, and whether a cursor still holds.
//!
//! A history begins when the schema is made, and another one when the database turns out to go on
//! from an earlier state (a restore, a failover). All numbers of a later history are higher than
//! those of the earlier ones, so the first numbers of each tell to which one a number belongs.

use crate::domain::ids::EventId;

/// How far sequences jump ahead at least when a history begins: 2^36, as in `waybill.begin_history`.
pub const JUMP: i64 = 68_719_476_736;

/// The characters of an epoch.
pub const EPOCH_CHARS: usize = 8;

/// One history of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// Its name, random.
    pub epoch: String,
    /// The first id of an event, delivery, subscription or dead letter.
    pub first_id: i64,
    /// The first id of an entry of the log.
    pub first_log_id: i64,
}

/// What a position in a list is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// Ids of events, deliveries, subscriptions, dead letters and replays.
    Ids,
    /// Ids of log entries.
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

/// The histories of a database, as they were when they were read.
#[derive(Debug, Default)]
pub struct Histories {
    /// The oldest first.
    rows: Vec<History>,
    /// Ids from here on may belong to a history that has begun since.
    certain_below: i64,
}

impl Histories {
    /// Makes a copy of these rows, the oldest first. The id `seen`, if there is one, was given out
    /// before they were read.
    pub fn new(rows: Vec<History>, seen: Option<i64>) -> Self {
        let next_begins_above = rows.last().map_or(0, |last| last.first_id.saturating_add(JUMP));
        let certain_below = next_begins_above.max(seen.map_or(0, |id| id.saturating_add(1)));
        Histories { rows, certain_below }
    }

    /// Returns the present history, if any is known.
    pub fn present(&self) -> Option<&History> {
        self.rows.last()
    }

    /// Returns the epoch of an event, or `None` if the rows have to be read again to tell.
    pub fn epoch_of(&self, event_id: EventId) -> Option<&str> {
        if event_id.0 >= self.certain_below {
            return None;
        }
        self.rows.iter().rev().find(|history| history.first_id <= event_id.0).map(|history| history.epoch.as_str())
    }

    /// Returns whether a number may belong to a history that has begun since the rows were read.
    pub fn may_be_later(&self, numbers: Numbers, position: i64) -> bool {
        let next_begins_above = self.rows.last().map_or(0, |last| last.first(numbers).saturating_add(JUMP));
        match numbers {
            Numbers::Ids => position >= self.certain_below,
            Numbers::LogIds => position >= next_begins_above,
        }
    }

    /// Returns whether a cursor that was handed out in `epoch` still says where to go on. A failover
    /// does not invalidate it: numbers below it mean what they meant. One of a history that is not
    /// among the rows was handed out by a database that has since gone back.
    pub fn holds(&self, epoch: &str, numbers: Numbers, position: i64) -> bool {
        let Some(index) = self.rows.iter().position(|history| history.epoch == epoch) else { return false };
        self.rows.get(index + 1).is_none_or(|next| position < next.first(numbers))
    }
}

/// Returns whether a text can be an epoch.
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
    fn an_id_so_high_that_a_later_history_may_have_begun_is_not_guessed_at() {
        let last = JUMP + 100 + JUMP - 1;
        assert_eq!(two(None).epoch_of(EventId(last)), Some("second"));
        assert_eq!(two(None).epoch_of(EventId(last + 1)), None);
        assert_eq!(two(Some(last + 1)).epoch_of(EventId(last + 1)), Some("second"));
        assert_eq!(two(Some(last + 1)).epoch_of(EventId(last + 2)), None);
        assert_eq!(Histories::default().epoch_of(EventId(1)), None);
    }

    #[test]
    fn a_cursor_holds_in_its_own_history_and_those_that_follow_it() {
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
