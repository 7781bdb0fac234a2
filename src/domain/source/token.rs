//! The token in the URL of a source. Nobody can guess it, and a source is looked up by its hash.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

const TOKEN_BYTES: usize = 24;
const TOKEN_CHARS: usize = TOKEN_BYTES / 3 * 4;

/// The token in the URL of a source. Its `Debug` output does not reveal it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SourceToken(String);

/// The SHA-256 of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenHash(pub [u8; 32]);

impl SourceToken {
    /// Generates a token of 192 random bits.
    pub(crate) fn generate() -> Result<Self, String> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| format!("the system gave no random bytes: {error}"))?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    pub(crate) fn as_text(&self) -> &str {
        &self.0
    }

    pub(crate) fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(&self.0).into())
    }

    /// Returns the hash of a token that a client sent, or `None` if the text cannot be a token.
    pub(crate) fn hash_of(text: &str) -> Option<TokenHash> {
        let is_token = text.len() == TOKEN_CHARS
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        is_token.then(|| TokenHash(Sha256::digest(text).into()))
    }
}

impl fmt::Debug for SourceToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SourceToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_hash_and_other_texts_have_none() {
        let token = SourceToken::generate().unwrap();
        assert_eq!(SourceToken::hash_of(token.as_text()), Some(token.hash()));
        assert_ne!(SourceToken::generate().unwrap(), token);
        for text in
            ["", "a", &format!("{}a", token.as_text()), &token.as_text().replace(|_| true, "ä"), &".".repeat(32)]
        {
            assert_eq!(SourceToken::hash_of(text), None, "{text}");
        }
        assert_eq!(format!("{token:?}"), "SourceToken(…)");
    }
}
