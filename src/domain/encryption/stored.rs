//! The form in which a secret is stored.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The beginning of every encrypted text. A webhook secret begins with `whsec_`, so it cannot be mistaken for one.
const ENCRYPTED: &str = "enc:";
/// The beginning of the encrypted texts that this version writes. The id of the key and base64 follow.
const VERSION_1: &str = "enc:v1:";
/// The beginning of a plain text in a column whose plain texts may be anything.
const PLAIN: &str = "plain:";
/// The field of the object that stands for an encrypted text in JSON.
const JSON_FIELD: &str = "encrypted";

/// A secret as it is stored. Its `Debug` output does not reveal it.
#[derive(Clone, PartialEq, Eq)]
pub enum StoredText {
    /// Stored as it is, because the server had no key.
    Plain(String),
    /// Stored encrypted. The text is `enc:v1:<id of the key>:<base64>`, unless somebody has damaged it or a later
    /// version wrote it.
    Encrypted(String),
}

impl StoredText {
    /// Returns the secret of a subscription, from its column.
    pub(crate) fn of_secret_column(text: String) -> Self {
        if text.starts_with(ENCRYPTED) { Self::Encrypted(text) } else { Self::Plain(text) }
    }

    /// Returns the text for the column of a subscription's secret.
    pub(crate) fn as_secret_column(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Encrypted(text) => text,
        }
    }

    /// Returns the secret or the token of a source, from its column. A sender chooses the secret, so a plain one is
    /// marked as such: it may look encrypted.
    pub(crate) fn of_marked_column(text: &str) -> Self {
        match text.strip_prefix(PLAIN) {
            Some(plain) => Self::Plain(plain.to_owned()),
            None => Self::Encrypted(text.to_owned()),
        }
    }

    /// Returns the text for the column of a source's secret or token.
    pub(crate) fn to_marked_column(&self) -> String {
        match self {
            Self::Plain(text) => format!("{PLAIN}{text}"),
            Self::Encrypted(text) => text.clone(),
        }
    }

    /// Returns the value of a header, from the settings of a subscription. A plain value is a string, whatever it
    /// contains, and an encrypted one is an object: a client may choose a value that looks encrypted.
    pub(crate) fn of_json(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Plain(text.clone()),
            other => Self::Encrypted(other[JSON_FIELD].as_str().unwrap_or_default().to_owned()),
        }
    }

    /// Returns the value of a header, for the settings of a subscription.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Plain(text) => json!(text),
            Self::Encrypted(text) => json!({ JSON_FIELD: text }),
        }
    }

    /// Returns whether the text is stored as it is.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Returns the encrypted text of what the key with this id has encrypted.
    pub(super) fn encrypted(key_id: &str, encrypted: &[u8]) -> Self {
        Self::Encrypted(format!("{VERSION_1}{key_id}:{}", STANDARD.encode(encrypted)))
    }
}

/// Splits an encrypted text into the id of its key and what that key has encrypted. Returns `None` for a text that
/// this version cannot read.
pub(super) fn split_encrypted(text: &str) -> Option<(&str, Vec<u8>)> {
    let (key_id, encoded) = text.strip_prefix(VERSION_1)?.split_once(':')?;
    Some((key_id, STANDARD.decode(encoded).ok()?))
}

impl fmt::Debug for StoredText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Plain(_) => "Plain(…)",
            Self::Encrypted(_) => "Encrypted(…)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_header_value_that_looks_encrypted_stays_plain() {
        for value in ["enc:v1:0011223344556677:AAAA", "{\"encrypted\": \"enc:v1:a:AAAA\"}", ""] {
            let stored = StoredText::of_json(&json!(value));
            assert_eq!(stored, StoredText::Plain(value.to_owned()));
            assert_eq!(stored.to_json(), json!(value));
        }
    }

    #[test]
    fn an_encrypted_header_value_is_an_object() {
        let stored = StoredText::encrypted("0011223344556677", b"x");
        assert_eq!(stored.to_json(), json!({"encrypted": "enc:v1:0011223344556677:eA=="}));
        assert_eq!(StoredText::of_json(&stored.to_json()), stored);
    }

    #[test]
    fn a_plain_secret_of_a_source_that_looks_encrypted_stays_plain() {
        for secret in ["enc:v1:0011223344556677:AAAA", "plain:a", "s3cret"] {
            let stored = StoredText::Plain(secret.to_owned());
            assert_eq!(StoredText::of_marked_column(&stored.to_marked_column()), stored);
        }
        let stored = StoredText::encrypted("0011223344556677", b"x");
        assert_eq!(StoredText::of_marked_column(&stored.to_marked_column()), stored);
    }

    #[test]
    fn no_webhook_secret_looks_encrypted() {
        let secret = crate::domain::signature::Secret::generate().unwrap().as_text();
        assert_eq!(StoredText::of_secret_column(secret.clone()), StoredText::Plain(secret));
        assert!(crate::domain::signature::Secret::parse("enc:v1:a:AAAA").is_err());
    }

    #[test]
    fn a_stored_text_is_not_in_debug_output() {
        let plain = StoredText::Plain("s3cret".into());
        assert_eq!(format!("{plain:?}"), "Plain(…)");
    }
}
