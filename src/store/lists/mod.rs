//! Lists for operators. Their cost is bounded, whatever the size of the tables.

pub mod audit_entries;
pub mod candidates;
pub mod dead_letters;
mod event_search;
mod event_sources;
mod event_times;
pub(crate) mod event_types;
pub mod events;
pub(crate) mod filtered_query;
pub(crate) mod gauges;
pub mod log_entries;
mod log_times;
mod log_windows;
pub mod pages;
pub mod pushes;
mod small_logs;
mod spans;
pub(crate) mod tags;
pub mod targets;
mod worker_entries;
