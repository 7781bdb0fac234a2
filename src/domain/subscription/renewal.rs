//! Secrets that are encrypted again, with the first key.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::domain::encryption::{Binding, Field, Keyring, Owner, StoredText, Unreadable};

/// The outcome for one stored value.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// The value as it was stored.
    pub before: StoredText,
    /// Whether it can be decrypted. An unreadable value is left as it is.
    pub readable: Result<(), Unreadable>,
}

/// Encrypts the stored text of a secret again. Returns the new text, or `None` if it is to stay.
pub(crate) fn renew_secret(
    keys: &Keyring,
    owner: Owner,
    text: &str,
    renewals: &mut Vec<Renewal>,
) -> Result<Option<String>, String> {
    let before = StoredText::of_secret_column(text.to_owned());
    let new = renew(keys, Binding { owner, field: Field::Secret }, before, renewals)?;
    Ok(new.map(|new| new.as_secret_column().to_owned()))
}

/// Encrypts the headers in the stored settings of a subscription again. Returns the new settings, in which everything
/// else is as it was, or `None` if they are to stay.
pub(crate) fn renew_headers(
    keys: &Keyring,
    owner: Owner,
    spec: &str,
    renewals: &mut Vec<Renewal>,
) -> Result<Option<String>, String> {
    let unreadable = |error: serde_json::Error| error.to_string();
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(spec).map_err(unreadable)?;
    let Some(headers) = fields.get("headers") else { return Ok(None) };
    let mut headers: Map<String, Value> = serde_json::from_str(headers.get()).map_err(unreadable)?;
    let mut is_changed = false;
    for (name, value) in &mut headers {
        let binding = Binding { owner, field: Field::Header(name) };
        if let Some(new) = renew(keys, binding, StoredText::of_json(value), renewals)? {
            *value = new.to_json();
            is_changed = true;
        }
    }
    if !is_changed {
        return Ok(None);
    }
    fields.insert("headers".into(), to_raw_value(&headers).map_err(unreadable)?);
    serde_json::to_string(&fields).map(Some).map_err(unreadable)
}

/// Encrypts a value again, unless the first key has encrypted it. A value that stays is decrypted, too: a damaged one
/// must be noticed while it can still be replaced.
pub(crate) fn renew(
    keys: &Keyring,
    binding: Binding<'_>,
    before: StoredText,
    renewals: &mut Vec<Renewal>,
) -> Result<Option<StoredText>, String> {
    let is_current = keys.is_current(&before);
    let (new, readable) = match keys.decrypt(&before, &binding) {
        Ok(_) if is_current => (None, Ok(())),
        Ok(plain) => (Some(keys.encrypt(&plain, &binding)?), Ok(())),
        Err(unreadable) => (None, Err(unreadable)),
    };
    renewals.push(Renewal { before, readable });
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::encryption::SecretKey;
    use crate::domain::ids::{NamespaceId, SubscriptionId, SubscriptionKey};
    use crate::domain::json::RawJson;
    use crate::domain::subscription::{Credentials, SubscriptionSpec};

    const OWNER: Owner = Owner::Subscription(SubscriptionKey { namespace: NamespaceId(1), id: SubscriptionId(7) });

    fn keys(texts: &[&String]) -> Keyring {
        Keyring::parse(&texts.iter().map(|text| text.as_str()).collect::<Vec<_>>().join("\n")).unwrap()
    }

    #[test]
    fn plain_and_old_headers_are_encrypted_and_nothing_else_changes() {
        let (old, new) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let secret = StoredText::Plain(crate::domain::signature::Secret::generate().unwrap().as_text());
        let mut spec = SubscriptionSpec::new("http://a");
        spec.headers.insert("X-A".into(), StoredText::Plain("a".into()));
        spec.encrypt_headers(&keys(&[&old]), OWNER).unwrap();
        spec.headers.insert("X-B".into(), StoredText::Plain("b".into()));
        let stored = RawJson::of(&spec.to_json()).unwrap();
        let (both, mut renewals) = (keys(&[&new, &old]), Vec::new());
        let renewed = renew_headers(&both, OWNER, stored.as_str(), &mut renewals).unwrap().expect("a change");
        assert_eq!(renewals.len(), 2);
        let read = SubscriptionSpec::from_stored(&RawJson::from_column(renewed.clone())).unwrap();
        let plain = Credentials::decrypt(&keys(&[&new]), OWNER, [&secret], &read).unwrap().headers;
        assert_eq!(plain.into_iter().collect::<Vec<_>>(), [("X-A".into(), "a".into()), ("X-B".into(), "b".into())]);
        assert_eq!(SubscriptionSpec { headers: spec.headers.clone(), ..read }, spec);
        assert_eq!(renew_headers(&both, OWNER, &renewed, &mut Vec::new()).unwrap(), None, "it is encrypted already");
    }

    #[test]
    fn other_fields_keep_every_character() {
        let new = SecretKey::generate().unwrap();
        let spec = r#"{"filter":{"a": 1.50, "b":1e2},"headers":{"X-A":"a"},"url":"http:\/\/a"}"#;
        let renewed = renew_headers(&keys(&[&new]), OWNER, spec, &mut Vec::new()).unwrap().unwrap();
        assert!(renewed.starts_with(r#"{"filter":{"a": 1.50, "b":1e2},"headers":{"X-A":{"encrypted":"enc:v1:"#));
        assert!(renewed.ends_with(r#""}},"url":"http:\/\/a"}"#), "{renewed}");
    }

    #[test]
    fn an_unreadable_value_is_left_as_it_is() {
        let (lost, new) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let binding = Binding { owner: OWNER, field: Field::Secret };
        let stored = keys(&[&lost]).encrypt("whsec_x", &binding).unwrap();
        let mut renewals = Vec::new();
        assert_eq!(renew_secret(&keys(&[&new]), OWNER, stored.as_secret_column(), &mut renewals), Ok(None));
        assert!(renewals[0].readable.is_err());
    }
}
