//! The secrets of sources: what they look like, and how they are stored.

use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::domain::encryption::{Binding, Keyring, StoredText};
use crate::domain::subscription::{Renewal, renew};
use crate::domain::{limits, text};

/// The beginning of a secret of Standard Webhooks. Base64 follows.
const STANDARD_PREFIX: &str = "whsec_";

/// Base64 with or without the `=` at its end.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A secret that a source shares with its sender. Its `Debug` output does not reveal it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SourceSecret(String);

impl SourceSecret {
    /// Parses a secret of any scheme but `standard`.
    pub(super) fn parse(given: &str) -> Result<Self, String> {
        text::check(given, limits::SOURCE_SECRET_CHARS)?;
        Ok(Self(given.to_owned()))
    }

    /// Parses a secret of Standard Webhooks, `whsec_` and base64. The error does not contain it.
    pub(super) fn parse_standard(given: &str) -> Result<Self, String> {
        let secret = Self::parse(given)?;
        match secret.standard_key() {
            Some(key) if !key.is_empty() => Ok(secret),
            _ => Err(format!("must be {STANDARD_PREFIX} followed by base64")),
        }
    }

    /// Returns a secret that was stored.
    pub(crate) fn from_stored(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn as_text(&self) -> &str {
        &self.0
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns the key that Standard Webhooks signs with.
    pub(super) fn standard_key(&self) -> Option<Vec<u8>> {
        BASE64.decode(self.0.strip_prefix(STANDARD_PREFIX)?).ok()
    }
}

impl fmt::Debug for SourceSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SourceSecret(…)")
    }
}

/// Encrypts a stored secret or token of a source again. Returns the new text, or `None` if it is to stay.
pub(crate) fn renew_source_text(
    keys: &Keyring,
    binding: Binding<'_>,
    text: &str,
    renewals: &mut Vec<Renewal>,
) -> Result<Option<String>, String> {
    let new = renew(keys, binding, StoredText::of_marked_column(text), renewals)?;
    Ok(new.map(|new| new.to_marked_column()))
}
