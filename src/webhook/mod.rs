//! SENDS: one request to one receiver, and what came of it. No SQL, and no opinion: whether an
//! answer is a success, and when to try again, is for others to say.
//!
//! The cast: a [`WebhookRequest`] is all that is to be sent; the [`Client`] sends it and always
//! answers with an [`Exchange`], which is either an [`Answer`] with a status or a [`SendError`]
//! of a known kind.
//!
//! Receivers are strangers, so nothing is taken on trust:
//!
//! - One deadline covers everything, from the look-up of the name to the last byte of the body.
//! - Of the body no more is read than [`RESPONSE_READ_BYTES`], and kept than [`EXCERPT_BYTES`].
//! - Only public addresses are dialled, and those that the operator allows. A name is judged by
//!   all its addresses, in the look-up whose outcome is dialled (`resolver`), so that it cannot
//!   lead elsewhere a moment later. Addresses written in a URL are judged before anything is
//!   sent, because nobody looks those up.
//! - Redirects are not followed, and proxies are used only if configured, never because of the
//!   environment. With a proxy, it is the proxy that looks names up and dials: judging those is
//!   its business then.

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
pub use excerpt::{EXCERPT_BYTES, RESPONSE_READ_BYTES};
pub use exchange::{Answer, Exchange, SendError, WebhookRequest};
pub use letter::OutboundMessage;
pub use resolver::Lookup;
pub use settings::WebhookSettings;
