//! RULES: everything that is true without a database.
//!
//! The cast: an [`event::NewEvent`] is a fact somebody wants published; a
//! [`delivery::Delivery`] is one consumer's work on it and carries the state machine; a
//! [`lease::Caller`] is somebody who says that they hold a claim, and [`lease`] decides
//! whether they do; a [`repeat::Recorded`] settlement tells a repeated one from another; [`backoff::Backoff`] says when a failed attempt may be repeated.
//!
//! What is pushed has its own: a [`subscription::Subscription`] says which events go where,
//! and [`matching::Catalog`] finds those that an event is for; [`transform`] makes the body,
//! [`signature`] signs it, and an [`attempt::AttemptOutcome`] is judged by
//! [`subscription::RetryOn`].

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
