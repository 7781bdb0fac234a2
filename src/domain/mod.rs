//! RULES: everything that is true without a database.
//!
//! The cast: an [`event::NewEvent`] is a fact somebody wants published; a
//! [`delivery::Delivery`] is one consumer's work on it and carries the state machine; a
//! [`lease::Caller`] is somebody who says that they hold a claim, and [`lease`] decides
//! whether they do; [`backoff::Backoff`] says when a failed attempt may be repeated.

pub mod action;
pub mod backoff;
pub mod delivery;
pub mod event;
pub mod invalid;
pub mod json;
pub mod lease;
pub mod limits;
pub mod status;
pub mod tags;
pub mod text;
pub mod timestamp;
pub mod worker_id;
