//! Encryption of secrets at rest: webhook secrets, the header values of subscriptions, and the secrets and tokens of
//! sources.
//!
//! A [`SecretKey`] comes from the operator, and a [`Keyring`] has all keys of a server: the first encrypts, and
//! every one decrypts. A [`StoredText`] is what a table holds: the plain text if the server had no key, or an
//! encrypted one that names its key. A [`Binding`] says what a value belongs to. It is authenticated together
//! with the value, so a value that was moved to another subscription, or to another header, cannot be decrypted.
//! A dead letter has the namespace and the subscription of its push, so its copy is bound to the same things as
//! the original.
//!
//! `docs/decisions/0026-secrets-at-rest.md` explains the choice of the algorithms.

mod key;
mod keyring;
mod stored;

pub use key::SecretKey;
pub use keyring::{Keyring, Unreadable, UnreadableCause};
pub use stored::StoredText;

use std::fmt;

use super::ids::{SourceKey, SubscriptionKey};

/// What an encrypted value belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Binding<'a> {
    pub owner: Owner,
    pub field: Field<'a>,
}

/// What secrets belong to.
#[derive(Debug, Clone, Copy)]
pub enum Owner {
    Subscription(SubscriptionKey),
    Source(SourceKey),
}

/// The field of a subscription or of a source that holds an encrypted value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Field<'a> {
    /// A secret that requests are signed with.
    Secret,
    /// The token in the URL of a source.
    Token,
    /// The value of the header with this name.
    Header(&'a str),
}

impl Binding<'_> {
    /// Returns the text that is authenticated with a value. Only the last part has characters that a client
    /// chooses, so no two bindings have the same text. The case of a header's name does not matter.
    fn authenticated_text(&self) -> String {
        let owner = match self.owner {
            Owner::Subscription(SubscriptionKey { namespace, id }) => format!("waybill/{namespace}/{id}"),
            Owner::Source(SourceKey { namespace, id }) => format!("waybill/{namespace}/source/{id}"),
        };
        match self.field {
            Field::Secret => format!("{owner}/secret"),
            Field::Token => format!("{owner}/token"),
            Field::Header(name) => format!("{owner}/header/{}", name.to_ascii_lowercase()),
        }
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Secret => out.write_str("the secret"),
            Field::Token => out.write_str("the token"),
            Field::Header(name) => write!(out, "the header {name}"),
        }
    }
}
