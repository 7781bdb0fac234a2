//! Signatures as in Standard Webhooks 1.0, by which a receiver verifies the sender of a request.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::limits;

const PREFIX: &str = "whsec_";
const GENERATED_BYTES: usize = 32;

/// A key shared with a receiver. Its `Debug` output does not reveal it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Generates a secret from the system's source of randomness.
    pub fn generate() -> Result<Self, String> {
        let mut key = vec![0; GENERATED_BYTES];
        getrandom::fill(&mut key).map_err(|error| format!("the system gave no random bytes: {error}"))?;
        Ok(Self(key))
    }

    /// Parses the text form, `whsec_` followed by 24 to 64 bytes in base64. The error is the reason
    /// for refusal, and does not contain the secret.
    pub fn parse(text: &str) -> Result<Self, String> {
        let encoded = text.strip_prefix(PREFIX);
        let key = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
        key.filter(|key| limits::SECRET_BYTES.contains(&key.len())).map(Self).ok_or_else(|| {
            let (least, most) = (limits::SECRET_BYTES.start(), limits::SECRET_BYTES.end());
            format!("must be {PREFIX} followed by {least} to {most} bytes in base64")
        })
    }

    /// Returns the text form, to be stored or to be shown once.
    pub fn as_text(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(…)")
    }
}

/// Returns the value of the `webhook-signature` header. It has one signature for each secret, so a
/// receiver may know either secret during a rotation. `timestamp` is the time of the attempt in
/// seconds since 1970.
pub fn sign(secrets: &[Secret], id: &str, timestamp: i64, body: &[u8]) -> String {
    let signatures: Vec<String> = secrets.iter().map(|secret| secret.sign(id, timestamp, body)).collect();
    signatures.join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn the_signature_equals_that_of_the_reference_libraries() {
        let secret = Secret::parse(TEXT).unwrap();
        assert_eq!(sign(&[secret], ID, 1_614_265_330, br#"{"test": 2432232314}"#), SIGNATURE);
    }

    #[test]
    fn several_secrets_give_several_signatures() {
        let old = Secret::parse(TEXT).unwrap();
        let new = Secret::generate().unwrap();
        let both = sign(&[new.clone(), old.clone()], ID, 1, b"x");
        assert_eq!(both, format!("{} {}", sign(&[new], ID, 1, b"x"), sign(&[old], ID, 1, b"x")));
    }

    #[test]
    fn secrets_have_a_size_limit_and_are_random() {
        let secret = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
        for (bytes, is_fine) in [(0, false), (23, false), (24, true), (64, true), (65, false)] {
            assert_eq!(Secret::parse(&secret(bytes)).is_ok(), is_fine, "{bytes}");
        }
        for bad in [
            "",
            "whsec_",
            &TEXT[6..],
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
            "WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        ] {
            assert!(Secret::parse(bad).is_err(), "{bad}");
        }
        assert_ne!(Secret::generate(), Secret::generate());
    }

    #[test]
    fn a_secret_is_not_in_debug_output_or_errors() {
        let secret = Secret::parse(TEXT).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert!(!Secret::parse("whsec_c2VjcmV0").unwrap_err().contains("c2VjcmV0"));
    }

    proptest! {
        #[test]
        fn a_secret_survives_serialisation(key in prop::collection::vec(any::<u8>(), 24..=64)) {
            let text = Secret(key).as_text();
            prop_assert_eq!(Secret::parse(&text).unwrap().as_text(), text);
        }
    }
}
