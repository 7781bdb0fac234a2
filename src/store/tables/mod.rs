//! One module per table or group of tables: the writes, and the reads of the engine.

pub mod busy_keys;
pub(crate) mod catalog;
pub(crate) mod claim_requests;
pub mod claims;
pub(crate) mod columns;
pub mod completions;
pub mod dead_letters;
pub mod deliveries;
pub(crate) mod endpoints;
pub(crate) mod event_columns;
pub(crate) mod event_log;
pub mod events;
pub(crate) mod filter_overruns;
pub(crate) mod histories;
pub(crate) mod latest;
pub mod lease_watch;
pub(crate) mod log_partitions;
pub(crate) mod operations;
pub mod ordering;
pub mod overdue;
pub mod push_log;
pub(crate) mod ready;
pub mod roll_ups;
pub(crate) mod schema;
pub(crate) mod subscriptions;
pub(crate) mod workers;
