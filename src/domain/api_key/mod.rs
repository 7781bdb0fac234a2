//! API keys: their text, what they allow, and who a caller with one is.
//!
//! A key is `wb_`, 30 random characters and 6 characters of checksum, all of them letters and digits. The
//! checksum tells a typo from an unknown key without a query, and lets secret scanners recognise a key. Only the
//! SHA-256 of a key is stored. A slow hash protects passwords, which can be guessed; nobody guesses 178 random
//! bits, and a slow hash would delay every request that meets a cold cache.

mod patterns;
mod principal;
mod scopes;
mod session;

use std::fmt;

use flate2::Crc;
use sha2::{Digest, Sha256};

pub use patterns::TagPatterns;
pub use principal::{Principal, TagRefusal};
pub use scopes::{KeyScope, KeyScopes};
pub use session::SessionSecret;

use super::actor::is_reserved;
use super::{limits, text};

const PREFIX: &str = "wb_";
const RANDOM_CHARS: usize = 30;
const CHECKSUM_CHARS: usize = 6;

/// The number of characters of a key that are stored and shown, so that people can tell keys apart.
const SHOWN_CHARS: usize = 9;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The SHA-256 of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

/// A key. Its `Debug` output does not reveal it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Generates a key from the system's source of randomness.
    pub fn generate() -> Result<Self, String> {
        Ok(ApiKey(format!("{PREFIX}{}", checked_random()?)))
    }

    /// Returns the hash of a text if it is a key: it has the form of one, and its checksum is right.
    pub fn hash_of(text: &[u8]) -> Option<KeyHash> {
        let secret = text.strip_prefix(PREFIX.as_bytes())?;
        is_checked_random(secret).then(|| hash(text))
    }

    pub fn hash(&self) -> KeyHash {
        hash(self.0.as_bytes())
    }

    /// Returns the first characters, by which people tell keys apart.
    pub fn shown(&self) -> &str {
        &self.0[..SHOWN_CHARS]
    }

    /// Returns the key itself, to be shown once.
    pub fn as_text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ApiKey(…)")
    }
}

fn hash(key: &[u8]) -> KeyHash {
    KeyHash(Sha256::digest(key).into())
}

/// Returns random digits, and their checksum behind them.
fn checked_random() -> Result<String, String> {
    let mut random = String::with_capacity(RANDOM_CHARS + CHECKSUM_CHARS);
    while random.len() < RANDOM_CHARS {
        let mut bytes = [0; RANDOM_CHARS];
        getrandom::fill(&mut bytes).map_err(|error| format!("the system gave no random bytes: {error}"))?;
        // Bytes from 248 on are dropped: taken modulo 62, they would make some digits more frequent.
        let digits = bytes.iter().filter(|byte| **byte < 248).map(|byte| char::from(DIGITS[usize::from(byte % 62)]));
        random.extend(digits.take(RANDOM_CHARS - random.len()));
    }
    let checksum = checksum(random.as_bytes());
    random.push_str(&String::from_utf8_lossy(&checksum));
    Ok(random)
}

/// Returns whether a text is one of [`checked_random`].
fn is_checked_random(text: &[u8]) -> bool {
    let Some((random, check)) = text.split_last_chunk::<CHECKSUM_CHARS>() else { return false };
    random.len() == RANDOM_CHARS && random.iter().all(u8::is_ascii_alphanumeric) && checksum(random) == *check
}

/// Returns the CRC-32 of the random characters, in six digits.
fn checksum(random: &[u8]) -> [u8; CHECKSUM_CHARS] {
    let mut crc = Crc::new();
    crc.update(random);
    let mut rest = crc.sum();
    let mut digits = [0; CHECKSUM_CHARS];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(rest % 62) as usize];
        rest /= 62;
    }
    digits
}

/// Checks the name of a key. It stands in logs and records as the actor, so it is one line of visible text. The
/// error is the reason for refusal.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    text::check(name, limits::KEY_NAME_CHARS)?;
    if name.trim() != name || name.chars().any(char::is_control) {
        return Err("must be one line without spaces at its ends".into());
    }
    if is_reserved(name) {
        return Err("must not begin with `server:`, which names the server's own services".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_has_its_form_and_differs_from_others() {
        let key = ApiKey::generate().unwrap();
        assert_eq!(key.as_text().len(), 39);
        assert!(key.as_text().starts_with("wb_"));
        assert!(key.as_text()[3..].bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_eq!(ApiKey::hash_of(key.as_text().as_bytes()), Some(key.hash()));
        assert_ne!(key, ApiKey::generate().unwrap());
    }

    #[test]
    fn the_form_of_a_key_does_not_change() {
        // A key that was made once must be accepted by every later version.
        let text = format!("wb_{}{}", "0123456789ABCDEFGHIJKLMNOPQRST", "4PMbyp");
        let expected = String::from_utf8(checksum(b"0123456789ABCDEFGHIJKLMNOPQRST").to_vec()).unwrap();
        assert!(ApiKey::hash_of(text.as_bytes()).is_some(), "the checksum is {expected}");
    }

    #[test]
    fn text_that_is_no_key_is_refused() {
        let key = ApiKey::generate().unwrap();
        for text in ["", "wb_", "x", &key.as_text()[3..], &format!("{}0", key.as_text()), &key.as_text()[..38]] {
            assert_eq!(ApiKey::hash_of(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn every_digit_is_used_and_none_is_rare() {
        let mut counts = std::collections::HashMap::new();
        for _ in 0..2_000 {
            for digit in ApiKey::generate().unwrap().as_text()[3..33].chars() {
                *counts.entry(digit).or_insert(0_u32) += 1;
            }
        }
        // 60,000 digits: 968 of each on average, with a standard deviation of 31.
        assert_eq!(counts.len(), 62);
        assert!(counts.values().all(|count| (700..1_250).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_key_is_not_in_debug_output() {
        assert_eq!(format!("{:?}", ApiKey::generate().unwrap()), "ApiKey(…)");
    }

    #[test]
    fn a_name_is_one_line() {
        assert!(check_name("billing workers").is_ok());
        for bad in ["", " a", "a\n", "a\tb", &"x".repeat(limits::KEY_NAME_CHARS + 1)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        /// CRC-32 finds every change of up to 32 bits in a row.
        #[test]
        fn every_change_of_one_character_is_caught(at in 0..39_usize, other in any::<u8>()) {
            let mut text = ApiKey::generate().unwrap().as_text().as_bytes().to_vec();
            prop_assume!(text[at] != other);
            text[at] = other;
            prop_assert_eq!(ApiKey::hash_of(&text), None);
        }

        #[test]
        fn two_characters_that_change_places_are_caught(at in 3..38_usize) {
            let mut text = ApiKey::generate().unwrap().as_text().as_bytes().to_vec();
            prop_assume!(text[at] != text[at + 1]);
            text.swap(at, at + 1);
            prop_assert_eq!(ApiKey::hash_of(&text), None);
        }
    }
}
