//! Event types: what a team declares about the events that it publishes.
//!
//! A type has a name, and may have a [`schema`] that the payloads of its events must satisfy.

pub(crate) mod declaration;
pub(crate) mod rejection;
pub(crate) mod schema;

use super::event_pattern::{SYSTEM_PREFIX, is_system};
use super::{limits, text};

/// Checks that a type of this name can be declared: the rules of `event_type` of an event.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    text::check(name, limits::NAME_CHARS)?;
    match is_system(Some(name)) {
        true => Err(format!("must not begin with {SYSTEM_PREFIX}, which is for the server's own events")),
        false => Ok(()),
    }
}
