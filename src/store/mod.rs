//! SQL, and only here.
//!
//! Functions take a connection, return rows and never open a transaction: what must change
//! together is the engine's business. Diesel's DSL is used where it can say the thing; a
//! statement that needs CTEs or `UNNEST` is a file in `sql/`, named like the function that
//! runs it. [`statement`] says how a file declares its parameters, and how to run it in `psql`.

pub mod blocking;
pub mod busy_keys;
pub mod cached;
pub mod catalog;
pub mod claim_requests;
pub mod claims;
pub mod columns;
pub mod completions;
pub mod connect;
pub mod database;
pub mod dead_letter_list;
pub mod dead_letters;
pub mod deliveries;
pub mod dial;
pub mod endpoints;
pub mod event_log;
pub mod events;
pub mod filter_overruns;
pub mod gauges;
pub mod growing;
pub mod histories;
pub mod latest;
pub mod lease_watch;
pub mod listing;
pub mod maintenance;
pub mod migrate;
pub mod notify;
pub mod ordering;
pub mod overdue;
pub mod pages;
pub mod push_log;
pub mod push_records;
pub mod ready;
pub mod replay_jobs;
pub mod retention;
pub mod roll_ups;
pub mod schema;
pub mod sqlstate;
pub mod statement;
pub mod stream;
pub mod subscriptions;
pub mod tags;
pub mod transactions;
pub mod workers;
