//! HMAC signatures in headers: the scheme `hmac`, and those that are special cases of it.

use base64::Engine;
use ring::hmac::{self, Algorithm as RingAlgorithm, Context, Key};

use super::secret::BASE64;

/// The hash function of a signature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Algorithm {
    #[default]
    Sha256,
    Sha1,
    Sha512,
}

/// How the bytes of a signature are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    #[default]
    Hex,
    Base64,
}

impl Algorithm {
    pub(super) const NAMES: &'static str = "sha256, sha1, sha512";

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha1 => "sha1",
            Algorithm::Sha512 => "sha512",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        [Algorithm::Sha256, Algorithm::Sha1, Algorithm::Sha512].into_iter().find(|each| each.as_str() == name)
    }

    fn of_ring(self) -> RingAlgorithm {
        match self {
            Algorithm::Sha256 => hmac::HMAC_SHA256,
            Algorithm::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Algorithm::Sha512 => hmac::HMAC_SHA512,
        }
    }

    /// Returns the signature of a message that is given in parts.
    pub(super) fn sign(self, key: &[u8], message: &[&[u8]]) -> Vec<u8> {
        let mut context = Context::with_key(&Key::new(self.of_ring(), key));
        message.iter().for_each(|part| context.update(part));
        context.sign().as_ref().to_vec()
    }
}

impl Encoding {
    pub(super) const NAMES: &'static str = "hex, base64";

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Encoding::Hex => "hex",
            Encoding::Base64 => "base64",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        [Encoding::Hex, Encoding::Base64].into_iter().find(|each| each.as_str() == name)
    }

    /// Returns the bytes of a signature, or `None` if the text is not in this encoding.
    pub(super) fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Encoding::Hex => decode_hex(text.as_bytes()),
            Encoding::Base64 => BASE64.decode(text).ok(),
        }
    }
}

fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some((digit(*high)? * 16 + digit(*low)?) as u8)).collect()
}

/// Compares a secret with what a client sent. The time that it takes does not depend on where they differ, because
/// their hashes are compared, and those in constant time.
pub(super) fn is_equal(expected: &[u8], given: &[u8]) -> bool {
    let key = Key::new(hmac::HMAC_SHA256, b"waybill comparison v1");
    hmac::verify(&key, given, hmac::sign(&key, expected).as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test cases 1 and 2 of RFC 4231, and test cases 1 and 2 of RFC 2202.
    #[test]
    fn signatures_equal_those_of_the_standards() {
        let jefe: (&[u8], &[u8]) = (b"Jefe", b"what do ya want for nothing?");
        let hi: (&[u8], &[u8]) = (&[0x0b; 20], b"Hi There");
        let cases = [
            (Algorithm::Sha256, hi, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (Algorithm::Sha256, jefe, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (Algorithm::Sha1, hi, "b617318655057264e28bc0b6fb378c8ef146be00"),
            (Algorithm::Sha1, jefe, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
            (
                Algorithm::Sha512,
                jefe,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fd\
                 caeab1a34d4a6b4b636e070a38bce737",
            ),
        ];
        for (algorithm, (key, message), expected) in cases {
            let (first, rest) = message.split_at(3);
            assert_eq!(Some(algorithm.sign(key, &[first, rest])), Encoding::Hex.decode(expected), "{algorithm:?}");
        }
    }

    #[test]
    fn encodings_are_read_strictly_but_in_any_case_and_with_or_without_padding() {
        assert_eq!(Encoding::Hex.decode("00ffAB"), Some(vec![0, 255, 171]));
        for bad in ["0", "0g", "+1", " 00", "é0"] {
            assert_eq!(Encoding::Hex.decode(bad), None, "{bad}");
        }
        assert_eq!(Encoding::Base64.decode("AP8="), Some(vec![0, 255]));
        assert_eq!(Encoding::Base64.decode("AP8"), Some(vec![0, 255]));
        assert_eq!(Encoding::Base64.decode("AP8=="), None);
        assert_eq!(Encoding::Base64.decode("A P8"), None);
    }

    #[test]
    fn only_equal_texts_are_equal() {
        assert!(is_equal(b"", b"") && is_equal(b"secret", b"secret"));
        assert!(!is_equal(b"secret", b"secreT") && !is_equal(b"secret", b"secre") && !is_equal(b"", b"a"));
    }
}
