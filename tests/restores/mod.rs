//! The database continues from an earlier state: a backup was restored, or a standby that lagged
//! behind was promoted.

mod catalog;
mod copied;
mod cursors;
mod dump;
mod failover;
pub(crate) mod noticing;
mod stats;
mod witness;
