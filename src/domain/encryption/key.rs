//! One key, and what it encrypts.
//!
//! ChaCha20-Poly1305 must never encrypt two values with the same key and nonce. Its nonce of 96 bits is too short
//! to be chosen at random for an unlimited number of values. Therefore each value has a key of its own, derived
//! from the secret key and a random salt of 192 bits, and that key encrypts nothing else.

use std::fmt;

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};

/// The length of a key in bytes.
const KEY_BYTES: usize = 32;
/// The length of the id of a key in bytes. In text it has twice as many characters.
const ID_BYTES: usize = 8;
/// The length of the salt of a value in bytes.
const SALT_BYTES: usize = 24;
/// What the id of a key is derived for.
const FOR_ID: &[u8] = b"waybill key id v1";
/// What the key of a value is derived for.
const FOR_VALUE: &[u8] = b"waybill value v1";

/// Base64 with or without the `=` at its end.
const BASE64_CONFIG: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const BASE64: [GeneralPurpose; 2] =
    [GeneralPurpose::new(&alphabet::STANDARD, BASE64_CONFIG), GeneralPurpose::new(&alphabet::URL_SAFE, BASE64_CONFIG)];

/// A key that encrypts secrets at rest. Its `Debug` output shows its id only.
pub struct SecretKey {
    id: String,
    key: Prk,
}

impl SecretKey {
    /// Returns the text of a new random key.
    pub fn generate() -> Result<String, String> {
        random::<KEY_BYTES>().map(|bytes| STANDARD.encode(bytes))
    }

    /// Parses a key: 32 bytes in hexadecimal digits or in base64. The error does not contain the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be {KEY_BYTES} bytes in base64 or in hexadecimal digits");
        let bytes = from_hex(text).or_else(|| BASE64.iter().find_map(|base64| base64.decode(text).ok()));
        let bytes = bytes.filter(|bytes| bytes.len() == KEY_BYTES).ok_or_else(wrong)?;
        let key = Prk::new_less_safe(HKDF_SHA256, &bytes);
        let id = id_of(&key).ok_or_else(wrong)?;
        Ok(Self { id, key })
    }

    /// Returns the id of the key, which is derived from it and does not reveal it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Encrypts `plain`, and authenticates `bound_to` with it. Returns the salt followed by the encrypted text.
    pub(super) fn encrypt(&self, plain: &str, bound_to: &str) -> Result<Vec<u8>, String> {
        let salt = random::<SALT_BYTES>()?;
        let mut text = plain.as_bytes().to_vec();
        let encrypted = self
            .key_of_value(&salt)
            .and_then(|key| key.seal_in_place_append_tag(only_nonce(), Aad::from(bound_to.as_bytes()), &mut text).ok());
        encrypted.ok_or("a value could not be encrypted")?;
        Ok([&salt[..], &text].concat())
    }

    /// Decrypts what [`SecretKey::encrypt`] returned. Returns `None` if it was changed, or encrypted with another
    /// key, or for another `bound_to`.
    pub(super) fn decrypt(&self, encrypted: &[u8], bound_to: &str) -> Option<String> {
        let (salt, text) = encrypted.split_at_checked(SALT_BYTES)?;
        let mut text = text.to_vec();
        let key = self.key_of_value(salt)?;
        let plain = key.open_in_place(only_nonce(), Aad::from(bound_to.as_bytes()), &mut text).ok()?;
        String::from_utf8(plain.to_vec()).ok()
    }

    /// Returns the key of the value with this salt.
    fn key_of_value(&self, salt: &[u8]) -> Option<LessSafeKey> {
        let derived_for = [FOR_VALUE, salt];
        let derived = self.key.expand(&derived_for, &CHACHA20_POLY1305).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(derived)))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SecretKey({})", self.id)
    }
}

/// Returns the nonce of every value: each has its own key.
fn only_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// The length of a derived id.
struct IdLength;

impl KeyType for IdLength {
    fn len(&self) -> usize {
        ID_BYTES
    }
}

fn id_of(key: &Prk) -> Option<String> {
    let mut id = [0; ID_BYTES];
    key.expand(&[FOR_ID], IdLength).ok()?.fill(&mut id).ok()?;
    Some(format!("{:016x}", u64::from_be_bytes(id)))
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], String> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| format!("the system gave no random bytes: {error}"))?;
    Ok(bytes)
}

/// Parses pairs of hexadecimal digits. Returns `None` for any other text.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE};

    use super::*;

    #[test]
    fn a_key_may_be_hexadecimal_or_base64() {
        let bytes: Vec<u8> = (0..32).map(|n| n * 8 + 7).collect();
        let hex = bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().concat();
        let spellings = [hex, STANDARD.encode(&bytes), STANDARD_NO_PAD.encode(&bytes), URL_SAFE.encode(&bytes)];
        let ids: Vec<String> = spellings.iter().map(|text| SecretKey::parse(text).unwrap().id).collect();
        assert!(ids.iter().all(|id| *id == ids[0] && id.len() == 2 * ID_BYTES), "{ids:?}");
    }

    #[test]
    fn other_texts_are_refused_without_repeating_them() {
        let short = STANDARD.encode([7; 31]);
        let long = STANDARD.encode([7; 33]);
        for bad in ["", "a passphrase of thirty-two bytes", &short, &long, &"ab".repeat(31), &"g".repeat(64)] {
            let reason = SecretKey::parse(bad).unwrap_err();
            assert!(bad.is_empty() || !reason.contains(bad), "{reason}");
        }
    }

    #[test]
    fn generated_keys_are_accepted_and_different() {
        let (one, other) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        assert_ne!(SecretKey::parse(&one).unwrap().id(), SecretKey::parse(&other).unwrap().id());
    }

    #[test]
    fn a_key_is_not_in_debug_output() {
        let text = SecretKey::generate().unwrap();
        let key = SecretKey::parse(&text).unwrap();
        assert_eq!(format!("{key:?}"), format!("SecretKey({})", key.id()));
    }

    #[test]
    fn the_same_text_is_encrypted_differently_each_time() {
        let key = SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
        assert_ne!(key.encrypt("text", "a").unwrap(), key.encrypt("text", "a").unwrap());
    }
}
