//! What a request shows to its receiver to prove who sent it: the secrets and headers of a subscription, decrypted.

use std::collections::BTreeMap;
use std::fmt;

use super::SubscriptionSpec;
use crate::domain::encryption::{Binding, Field, Keyring, Owner, StoredText, Unreadable, UnreadableCause};
use crate::domain::signature::Secret;

/// The decrypted secrets and headers of a subscription. A request cannot be built without them, so nothing is sent
/// if they cannot be decrypted. Its `Debug` output does not reveal them.
#[derive(Clone)]
pub struct Credentials {
    /// The secrets to sign with, the present one first. There is at least one.
    pub secrets: Vec<Secret>,
    /// The headers to add, in plain text.
    pub headers: BTreeMap<String, String>,
}

impl Credentials {
    /// Decrypts the secrets that are in use, the present one first, and the headers of a subscription.
    pub(crate) fn decrypt<'a>(
        keys: &Keyring,
        owner: Owner,
        secrets: impl IntoIterator<Item = &'a StoredText>,
        spec: &SubscriptionSpec,
    ) -> Result<Self, Unreadable> {
        let binding = Binding { owner, field: Field::Secret };
        let unreadable = |cause| Unreadable { field: Field::Secret.to_string(), cause };
        let decrypt = |stored| {
            let text = keys.decrypt(stored, &binding)?;
            Secret::parse(&text).map_err(|_| unreadable(UnreadableCause::Malformed))
        };
        let secrets: Vec<Secret> = secrets.into_iter().map(decrypt).collect::<Result<_, _>>()?;
        if secrets.is_empty() {
            return Err(unreadable(UnreadableCause::Missing));
        }
        Ok(Self { secrets, headers: spec.decrypt_headers(keys, owner)? })
    }

    /// Returns the same secrets with the headers of other settings of the same subscription.
    pub(crate) fn with_headers_of(
        &self,
        spec: &SubscriptionSpec,
        keys: &Keyring,
        owner: Owner,
    ) -> Result<Self, Unreadable> {
        Ok(Self { secrets: self.secrets.clone(), headers: spec.decrypt_headers(keys, owner)? })
    }
}

impl SubscriptionSpec {
    /// Encrypts the headers that are still plain, if there is a key.
    pub(crate) fn encrypt_headers(&mut self, keys: &Keyring, owner: Owner) -> Result<(), String> {
        for (name, value) in &mut self.headers {
            if let StoredText::Plain(plain) = value {
                let binding = Binding { owner, field: Field::Header(name) };
                *value = keys.encrypt(plain, &binding)?;
            }
        }
        Ok(())
    }

    fn decrypt_headers(&self, keys: &Keyring, owner: Owner) -> Result<BTreeMap<String, String>, Unreadable> {
        let decrypt = |(name, stored): (&String, &StoredText)| {
            let binding = Binding { owner, field: Field::Header(name) };
            Ok((name.clone(), keys.decrypt(stored, &binding)?))
        };
        self.headers.iter().map(decrypt).collect()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Credentials(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::encryption::SecretKey;
    use crate::domain::ids::{NamespaceId, SubscriptionId, SubscriptionKey};

    const OWNER: Owner = Owner::Subscription(SubscriptionKey { namespace: NamespaceId(1), id: SubscriptionId(7) });

    fn spec(keys: &Keyring) -> SubscriptionSpec {
        let mut spec = SubscriptionSpec::new("http://a");
        spec.headers.insert("X-A".into(), StoredText::Plain("t0ken".into()));
        spec.encrypt_headers(keys, OWNER).unwrap();
        spec
    }

    fn keyring() -> Keyring {
        Keyring::parse(&SecretKey::generate().unwrap()).unwrap()
    }

    #[test]
    fn encrypted_headers_and_secrets_are_decrypted() {
        let keys = keyring();
        let (spec, secret) = (spec(&keys), Secret::generate().unwrap());
        assert!(!format!("{:?}", spec.to_json()).contains("t0ken"));
        let binding = Binding { owner: OWNER, field: Field::Secret };
        let stored = keys.encrypt(&secret.as_text(), &binding).unwrap();
        let credentials = Credentials::decrypt(&keys, OWNER, [&stored], &spec).unwrap();
        assert_eq!((&credentials.secrets[..], credentials.headers["X-A"].as_str()), (&[secret][..], "t0ken"));
        assert_eq!(format!("{credentials:?}"), "Credentials(…)");
        let other = Owner::Subscription(NamespaceId(1).subscription(SubscriptionId(8)));
        assert!(Credentials::decrypt(&keys, other, [&stored], &spec).is_err());
    }

    #[test]
    fn a_header_that_is_encrypted_already_is_not_encrypted_twice() {
        let keys = keyring();
        let mut spec = spec(&keys);
        let before = spec.clone();
        spec.encrypt_headers(&keyring(), OWNER).unwrap();
        assert_eq!(spec, before);
    }

    #[test]
    fn without_a_usable_secret_there_are_no_credentials() {
        let (keys, spec) = (Keyring::default(), SubscriptionSpec::new("http://a"));
        let cause = |secrets: &[StoredText]| Credentials::decrypt(&keys, OWNER, secrets, &spec).unwrap_err().cause;
        assert_eq!(cause(&[]), UnreadableCause::Missing);
        assert_eq!(cause(&[StoredText::Plain("garbage".into())]), UnreadableCause::Malformed);
    }
}
