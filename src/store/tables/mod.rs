//! One module per table or group of tables: the writes, and the reads of the engine.

pub mod busy_keys;
pub mod catalog;
pub mod claim_requests;
pub mod claims;
pub mod columns;
pub mod completions;
pub mod dead_letters;
pub mod deliveries;
pub mod endpoints;
pub mod event_columns;
pub mod event_log;
pub mod events;
pub mod filter_overruns;
pub mod histories;
pub mod latest;
pub mod lease_watch;
pub mod log_partitions;
pub mod ordering;
pub mod overdue;
pub mod push_log;
pub mod ready;
pub mod replay_jobs;
pub mod roll_ups;
pub mod schema;
pub mod subscriptions;
pub mod workers;
