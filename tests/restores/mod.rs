//! The database goes on from an earlier state: a backup was restored, or a standby that lagged
//! behind was promoted.

mod catalog;
