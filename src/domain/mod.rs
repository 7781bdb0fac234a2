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

pub mod action;
pub mod address;
pub mod attempt;
pub mod backoff;
pub mod dead_letter;
pub mod delivery;
pub mod event;
pub mod event_pattern;
pub mod filter;
pub mod history;
pub mod hosts;
pub mod ids;
pub mod input;
pub mod invalid;
pub mod json;
pub mod lease;
pub mod limits;
pub mod matching;
pub mod path;
pub mod raw_entries;
pub mod repeat;
pub mod retry_after;
pub mod scope;
pub mod seconds;
pub mod signature;
pub mod status;
pub mod subscription;
pub mod tags;
pub mod text;
pub mod timestamp;
pub mod transform;
pub mod worker_id;
