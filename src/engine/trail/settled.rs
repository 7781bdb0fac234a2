//! Which ids of the event log are settled.
//!
//! Ids are handed out in order, but a transaction may commit its entries long after others have committed later ones.
//! An id is *settled* when no open transaction can have it: an entry with this id is visible by now, or there will
//! never be one. Whoever reads only settled entries, in the order of ids, misses none.
//!
//! A look at the database ([`LogWriters`]) returns the last id and the transactions that may have ids up to that one.
//! When all of these have ended, all ids up to it are settled. New transactions begin all the time, but they get later
//! ids: so each look is remembered until its own transactions have ended, and under a constant load of short
//! transactions the settled id follows the last one with a delay of about a look.

use std::collections::{HashSet, VecDeque};

use crate::store::tables::log_writers::LogWriters;

/// The maximum number of looks that are remembered. With more, the latest one is replaced: a single long transaction
/// keeps all of them.
const MAX_LOOKS: usize = 32;

/// How far the event log is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SettledLog {
    /// All ids up to this one are settled. `None` if that is not known yet: the transactions of the first look are
    /// still open.
    pub id: Option<i64>,
    /// The last id that was handed out.
    pub last_id: i64,
}

/// What earlier looks have shown.
#[derive(Debug, Default)]
pub(super) struct SettledIds {
    settled: Option<i64>,
    /// The looks whose transactions have not all ended, oldest first. What keeps one of them keeps all later ones.
    looks: VecDeque<Look>,
}

#[derive(Debug)]
struct Look {
    last_id: i64,
    /// Those of its transactions that are still open.
    open: HashSet<String>,
}

impl SettledIds {
    /// Adds a look, which must have begun after all earlier ones have ended.
    pub(super) fn note(&mut self, writers: LogWriters) -> SettledLog {
        let LogWriters { last_id, open, has_prepared, .. } = writers;
        let newest = self.looks.back().map(|look| look.last_id).or(self.settled);
        if newest.is_some_and(|newest| last_id < newest) {
            // The database has gone back to an earlier state, or has crashed and forgotten ids that nobody had
            // committed.
            *self = SettledIds::default();
        }
        let open: HashSet<String> = open.into_iter().collect();
        // A transaction may have been prepared since an earlier look, which knows it under another number.
        if !has_prepared {
            for look in &mut self.looks {
                look.open.retain(|transaction| open.contains(transaction));
            }
        }
        while let Some(look) = self.looks.front().filter(|look| look.open.is_empty()) {
            self.settled = Some(look.last_id);
            self.looks.pop_front();
        }
        if open.is_empty() {
            self.settled = Some(last_id);
        } else {
            if self.looks.len() == MAX_LOOKS {
                self.looks.pop_back();
            }
            self.looks.push_back(Look { last_id, open });
        }
        SettledLog { id: self.settled, last_id }
    }

    /// Forgets the looks whose transactions are open, because the database may have ended all of them at once.
    pub(super) fn forget_open(&mut self) {
        self.looks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(last_id: i64, open: &[&str]) -> LogWriters {
        let open = open.iter().map(|transaction| (*transaction).to_owned()).collect();
        LogWriters { last_id, open, has_prepared: false, is_standby: false }
    }

    fn prepared(last_id: i64, open: &[&str]) -> LogWriters {
        LogWriters { has_prepared: true, ..look(last_id, open) }
    }

    /// Returns the settled id after each look.
    fn settled<const N: usize>(looks: [LogWriters; N]) -> [Option<i64>; N] {
        let mut ids = SettledIds::default();
        looks.map(|look| ids.note(look).id)
    }

    #[test]
    fn without_open_transactions_all_ids_are_settled() {
        assert_eq!(settled([look(0, &[]), look(7, &[]), look(7, &[])]), [Some(0), Some(7), Some(7)]);
    }

    #[test]
    fn an_open_transaction_holds_back_the_ids_that_it_may_have() {
        let looks = [look(7, &[]), look(9, &["3/1"]), look(12, &["3/1"]), look(12, &[])];
        assert_eq!(settled(looks), [Some(7), Some(7), Some(7), Some(12)]);
    }

    #[test]
    fn under_a_constant_load_each_look_settles_when_its_own_transactions_have_ended() {
        let looks =
            [look(10, &["1/1", "2/1"]), look(20, &["2/1", "3/1"]), look(30, &["1/2", "3/2"]), look(40, &["1/3"])];
        assert_eq!(settled(looks), [None, None, Some(20), Some(30)]);
    }

    #[test]
    fn a_long_transaction_keeps_a_bounded_number_of_looks() {
        let mut ids = SettledIds::default();
        for last_id in 1..1_000 {
            assert_eq!(ids.note(look(last_id, &["1/1", "2/1"])).id, None);
        }
        assert_eq!(ids.looks.len(), MAX_LOOKS);
        assert_eq!(ids.note(look(1_000, &["2/1"])).id, None);
        assert_eq!(ids.note(look(1_001, &["3/1"])), SettledLog { id: Some(1_000), last_id: 1_001 });
    }

    #[test]
    fn a_transaction_that_is_prepared_under_another_number_still_counts() {
        let looks = [look(5, &["3/1"]), prepared(6, &["-1/700"]), prepared(7, &["-1/700", "4/1"]), look(8, &["5/1"])];
        assert_eq!(settled(looks), [None, None, None, Some(7)]);
    }

    #[test]
    fn after_the_ids_have_gone_back_nothing_of_before_counts() {
        let looks = [look(9, &[]), look(12, &["3/1"]), look(10, &["4/1"]), look(10, &[])];
        assert_eq!(settled(looks), [Some(9), Some(9), None, Some(10)]);
        assert_eq!(settled([look(9, &[]), look(5, &["4/1"])]), [Some(9), None]);
    }
}
