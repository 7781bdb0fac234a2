//! A source: where the webhooks of one sender come in, how they are verified, and which events they become.
//!
//! A [`Webhook`] is a foreign request as it came. [`Verify`] is the scheme by which the sender proves that it sent the
//! request, and [`SourceSpec::incoming`] makes an event of it. [`preset`] has the settings of well-known providers. The
//! URL of a source contains a [`SourceToken`].

mod check;
mod hmac;
mod incoming;
mod preset;
mod read;
mod respond;
mod secret;
mod token;
mod value_from;
mod verify;
mod webhook;
mod write;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub(crate) use check::Rejection;
pub(crate) use preset::PROVIDERS;
pub(crate) use respond::Respond;
pub(crate) use secret::{SourceSecret, renew_source_text};
pub(crate) use token::{SourceToken, TokenHash};
pub(crate) use verify::Verify;
pub(crate) use webhook::Webhook;

use self::value_from::ValueFrom;
use super::json::RawJson;
use super::tags::Tags;

/// The settings of a source, checked and with defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SourceSpec {
    /// A display name. It is also the type of events in which no type is found.
    pub name: String,
    /// The provider whose settings were the defaults.
    pub provider: Option<&'static str>,
    pub verify: Verify,
    /// Where the type of an event is found.
    pub event_type_from: Option<ValueFrom>,
    /// Where the key is found by which a repeated webhook is recognised.
    pub idempotency_key_from: Option<ValueFrom>,
    /// The tags of the events.
    pub tags: Tags,
    /// The labels of the events.
    pub labels: BTreeMap<String, String>,
    /// The response to a webhook that was accepted.
    pub respond: Respond,
}

impl SourceSpec {
    /// Parses stored settings. They were checked before they were stored, so `None` means that a later version of the
    /// server wrote something that this version does not know.
    pub(crate) fn from_stored(json: &RawJson) -> Option<Self> {
        let fields: Map<String, Value> = serde_json::from_str(json.as_str()).ok()?;
        Self::parse(&fields).ok()
    }
}
