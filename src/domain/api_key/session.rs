//! The secret of a session: what a browser has instead of a key.

use std::fmt;

use super::{KeyHash, checked_random, hash, is_checked_random};

/// The secret of a session. Its `Debug` output does not reveal it.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecret(String);

impl SessionSecret {
    /// What all of them begin with. It differs from that of a key, so that neither is ever taken for the other.
    pub const PREFIX: &str = "wbs_";

    /// Generates a secret from the system's source of randomness.
    pub fn generate() -> Result<Self, String> {
        Ok(SessionSecret(format!("{}{}", Self::PREFIX, checked_random()?)))
    }

    /// Returns the hash of a text if it is the secret of a session: it has the form of one, and its checksum is right.
    pub fn hash_of(text: &[u8]) -> Option<KeyHash> {
        let secret = text.strip_prefix(Self::PREFIX.as_bytes())?;
        is_checked_random(secret).then(|| hash(text))
    }

    pub fn hash(&self) -> KeyHash {
        hash(self.0.as_bytes())
    }

    /// Returns the secret itself, for the cookie.
    pub fn as_text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SessionSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::api_key::ApiKey;

    #[test]
    fn a_session_is_no_key_and_a_key_no_session() {
        let (session, key) = (SessionSecret::generate().unwrap(), ApiKey::generate().unwrap());
        assert_eq!(SessionSecret::hash_of(session.as_text().as_bytes()), Some(session.hash()));
        assert_eq!(ApiKey::hash_of(session.as_text().as_bytes()), None);
        assert_eq!(SessionSecret::hash_of(key.as_text().as_bytes()), None);
        assert_eq!(format!("{session:?}"), "SessionSecret(…)");
    }

    #[test]
    fn text_that_is_no_session_is_refused() {
        let session = SessionSecret::generate().unwrap();
        let text = session.as_text();
        for text in ["", "wbs_", "x", &text[1..], &format!("{text}0"), &text[..39], &text.to_lowercase()] {
            assert_eq!(SessionSecret::hash_of(text.as_bytes()), None, "{text}");
        }
    }
}
