//! Rules: everything that is true without a database.
//!
//! An [`event::NewEvent`] is what a publisher wants stored. A [`delivery::Delivery`] is one
//! consumer's work on an event and carries the state machine. A [`lease::Caller`] claims to hold a
//! lease, and [`lease`] decides whether it does. A [`repeat::Recorded`] settlement shows whether a
//! new settlement repeats an earlier one. [`backoff::Backoff`] decides when a failed attempt may be
//! repeated.
//!
//! Pushes have their own types. A [`subscription::Subscription`] says which events go to which URL,
//! and [`matching::Catalog`] finds the subscriptions of an event. [`transform`] makes the body of a
//! request, and [`signature`] signs it. [`subscription::RetryOn`] judges the
//! [`attempt::AttemptOutcome`] of a request.
//!
//! A [`source::SourceSpec`] says how the webhooks of a sender are verified and which events they become.
//!
//! [`stats::Counts`] is what was done in a minute or an hour.
//!
//! [`doctor`] judges the state of a server and its database.
//!
//! An [`api_key::Principal`] is who makes a call, and what their key allows.

pub mod action;
pub mod actor;
pub(crate) mod address;
pub mod api_key;
pub mod attempt;
pub mod audit;
pub(crate) mod backoff;
pub(crate) mod dead_letter;
pub mod delivery;
pub(crate) mod doctor;
pub mod encryption;
pub mod event;
pub(crate) mod event_pattern;
pub(crate) mod event_type;
pub(crate) mod expected_version;
pub(crate) mod filter;
pub mod history;
pub(crate) mod hosts;
pub(crate) mod idempotency;
pub mod ids;
pub(crate) mod input;
pub(crate) mod invalid;
pub(crate) mod json;
pub mod lease;
pub(crate) mod limits;
pub(crate) mod matching;
pub(crate) mod namespace;
pub mod operation;
pub mod path;
pub mod publish_limits;
pub(crate) mod raw_entries;
pub(crate) mod redaction;
pub(crate) mod repeat;
pub mod retention;
pub(crate) mod retry_after;
pub mod scope;
pub mod search;
pub(crate) mod seconds;
pub(crate) mod shown_filter;
pub mod signature;
pub(crate) mod source;
pub mod stats;
pub mod status;
pub(crate) mod subscription;
pub mod tags;
pub(crate) mod text;
pub(crate) mod timestamp;
pub mod trace_context;
pub(crate) mod transform;
pub(crate) mod trusted_proxies;
pub(crate) mod worker_id;
