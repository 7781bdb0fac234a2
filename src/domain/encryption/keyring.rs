//! The keys of a server.

use std::fmt;
use std::sync::Arc;

use super::stored::split_encrypted;
use super::{Binding, SecretKey, StoredText};
use crate::domain::limits;

/// The keys of a server, which may be none. Clones share them.
#[derive(Clone, Default)]
pub struct Keyring(Arc<[SecretKey]>);

/// A stored value that cannot be decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} cannot be decrypted: {cause}")]
pub struct Unreadable {
    /// The field, in words.
    pub field: String,
    pub cause: UnreadableCause,
}

/// Why a stored value cannot be decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableCause {
    /// The server does not have the key with this id.
    #[error("it was encrypted with the key {0}, which this server does not have")]
    UnknownKey(String),
    /// The server has the key with this id, but the value is not what the key encrypted for this field.
    #[error("it is not what the key {0} encrypted for this field; it was changed or moved")]
    Damaged(String),
    /// The text has no form that this version knows.
    #[error("it is in no form that this version knows")]
    Malformed,
    /// There is no value.
    #[error("there is none")]
    Missing,
}

impl Keyring {
    /// Parses keys that are separated by line breaks, spaces or commas. Lines that begin with `#` are comments.
    /// The error does not contain a key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let words = lines.flat_map(|line| line.split([' ', '\t', ','])).filter(|word| !word.is_empty());
        let read = |(index, word)| SecretKey::parse(word).map_err(|why| format!("key {} {why}", index + 1));
        let keys: Vec<SecretKey> = words.enumerate().map(read).collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err("there is no key".into());
        }
        if keys.len() > limits::SECRET_KEYS {
            return Err(format!("there are more than {} keys", limits::SECRET_KEYS));
        }
        Ok(Self(keys.into()))
    }

    /// Returns the id of the key that encrypts, or `None` if there is no key.
    pub fn first_id(&self) -> Option<&str> {
        self.0.first().map(SecretKey::id)
    }

    /// Returns whether the key with this id is here.
    pub fn has(&self, key_id: &str) -> bool {
        self.find(key_id).is_some()
    }

    /// Encrypts a value with the first key. Without a key, returns it as it is.
    pub(crate) fn encrypt(&self, plain: &str, binding: &Binding<'_>) -> Result<StoredText, String> {
        let Some(key) = self.0.first() else { return Ok(StoredText::Plain(plain.to_owned())) };
        Ok(StoredText::encrypted(key.id(), &key.encrypt(plain, &binding.authenticated_text())?))
    }

    /// Decrypts a stored value. A plain one is returned as it is.
    pub(crate) fn decrypt(&self, stored: &StoredText, binding: &Binding<'_>) -> Result<String, Unreadable> {
        let unreadable = |cause| Unreadable { field: binding.field.to_string(), cause };
        let text = match stored {
            StoredText::Plain(text) => return Ok(text.clone()),
            StoredText::Encrypted(text) => text,
        };
        let (key_id, encrypted) = split_encrypted(text).ok_or_else(|| unreadable(UnreadableCause::Malformed))?;
        let unknown = || unreadable(UnreadableCause::UnknownKey(key_id.to_owned()));
        let key = self.find(key_id).ok_or_else(unknown)?;
        let plain = key.decrypt(&encrypted, &binding.authenticated_text());
        plain.ok_or_else(|| unreadable(UnreadableCause::Damaged(key_id.to_owned())))
    }

    /// Returns whether a value is encrypted with the first key.
    pub(crate) fn is_current(&self, stored: &StoredText) -> bool {
        stored.key_id().is_some() && stored.key_id() == self.first_id()
    }

    fn find(&self, key_id: &str) -> Option<&SecretKey> {
        self.0.iter().find(|key| key.id() == key_id)
    }
}

impl StoredText {
    /// Returns the id of the key that encrypted the text. Returns `None` for a plain text, and for one that this
    /// version cannot read.
    pub(crate) fn key_id(&self) -> Option<&str> {
        match self {
            Self::Plain(_) => None,
            Self::Encrypted(text) => split_encrypted(text).map(|(key_id, _)| key_id),
        }
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.0.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
