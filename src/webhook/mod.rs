//! Sends one request to one receiver. This module contains no SQL and does not decide about retries.
//!
//! A [`WebhookRequest`] is the complete request. The [`Client`] sends it and always returns an
//! [`Exchange`]: either a [`WebhookResponse`] with a status, or a [`SendError`] of a known kind.
//!
//! Receivers are not trusted:
//!
//! - One deadline covers everything, from name resolution to the last byte of the body.
//! - At most [`RESPONSE_READ_BYTES`] of a body are read, and at most [`EXCERPT_BYTES`] are kept. Secrets that the
//!   receiver repeats are not kept.
//! - Connections go only to public addresses and to those that the operator allows. All addresses of
//!   a name are checked in the same look-up whose result is used to connect (`resolver`), so a name
//!   cannot change its addresses after the check. Addresses in a URL need no look-up, so they are
//!   checked before sending.
//! - Redirects are not followed. A proxy is used only if configured, never because of the environment.
//!   With a proxy, the proxy resolves names and must restrict addresses.

mod client;
mod excerpt;
mod exchange;
mod failure;
mod letter;
mod prepare;
mod resolver;
mod settings;
mod trust;

pub use client::Client;
pub use excerpt::{EXCERPT_BYTES, REDACTED_CHARS, RESPONSE_READ_BYTES};
pub use exchange::{Exchange, SendError, WebhookRequest, WebhookResponse};
pub use letter::OutboundMessage;
pub use resolver::Lookup;
pub use settings::WebhookSettings;
#[cfg(feature = "otlp")]
pub(crate) use trust::tls_config;
