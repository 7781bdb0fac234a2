use proptest::prelude::*;

use super::*;
use crate::domain::encryption::{Field, Owner};
use crate::domain::ids::{NamespaceId, SubscriptionId, SubscriptionKey};

const SECRET: Binding<'static> = Binding { owner: owner(1, 7), field: Field::Secret };

const fn owner(namespace: i32, subscription_id: i64) -> Owner {
    Owner::Subscription(SubscriptionKey { namespace: NamespaceId(namespace), id: SubscriptionId(subscription_id) })
}

fn header(name: &str) -> Binding<'_> {
    Binding { field: Field::Header(name), ..SECRET }
}

fn keyring(keys: &[&str]) -> Keyring {
    Keyring::parse(&keys.join("\n")).unwrap()
}

fn new_key() -> String {
    SecretKey::generate().unwrap()
}

fn text_of(stored: &StoredText) -> &str {
    stored.as_secret_column()
}

#[test]
fn keys_are_separated_by_lines_spaces_or_commas() {
    let (one, two) = (new_key(), new_key());
    let ids: Vec<String> =
        [&one, &two].map(|text| SecretKey::parse(text).unwrap().id().to_owned()).into_iter().collect();
    for text in [format!("{one}\n{two}\n"), format!("# new\r\n{one}\r\n\n # old\n{two}"), format!(" {one}, {two}")] {
        let keys = Keyring::parse(&text).unwrap();
        assert_eq!(keys.first_id(), Some(ids[0].as_str()));
        assert!(keys.has(&ids[1]));
    }
}

#[test]
fn wrong_keys_are_refused_by_their_number_only() {
    let wrong = format!("{}\ns3cret", new_key());
    assert_eq!(Keyring::parse(&wrong).unwrap_err(), "key 2 must be 32 bytes in base64 or in hexadecimal digits");
    for empty in ["", "\n", "# only a comment"] {
        assert_eq!(Keyring::parse(empty).unwrap_err(), "there is no key");
    }
    let many: Vec<String> = (0..=limits::SECRET_KEYS).map(|_| new_key()).collect();
    assert!(Keyring::parse(&many.join("\n")).is_err());
}

#[test]
fn a_keyring_shows_ids_only() {
    let text = new_key();
    let keys = keyring(&[&text]);
    assert_eq!(format!("{keys:?}"), format!("[SecretKey({})]", keys.first_id().unwrap()));
}

#[test]
fn without_a_key_a_value_is_stored_as_it_is() {
    let none = Keyring::default();
    let stored = none.encrypt("text", &SECRET).unwrap();
    assert_eq!(stored, StoredText::Plain("text".into()));
    assert_eq!(none.decrypt(&stored, &SECRET).unwrap(), "text");
    assert_eq!(keyring(&[&new_key()]).decrypt(&stored, &SECRET).unwrap(), "text");
}

#[test]
fn the_first_key_encrypts_and_every_key_decrypts() {
    let (old, new) = (new_key(), new_key());
    let stored = keyring(&[&old]).encrypt("text", &SECRET).unwrap();
    let both = keyring(&[&new, &old]);
    assert_eq!(both.decrypt(&stored, &SECRET).unwrap(), "text");
    assert!(!both.is_current(&stored));
    let renewed = both.encrypt("text", &SECRET).unwrap();
    assert!(both.is_current(&renewed));
    assert_eq!(keyring(&[&new]).decrypt(&renewed, &SECRET).unwrap(), "text");
}

#[test]
fn a_value_of_an_unknown_key_names_the_key() {
    let keys = keyring(&[&new_key()]);
    let stored = keys.encrypt("text", &header("X-A")).unwrap();
    let id = keys.first_id().unwrap();
    for others in [Keyring::default(), keyring(&[&new_key()])] {
        let unreadable = others.decrypt(&stored, &header("X-A")).unwrap_err();
        assert_eq!(unreadable.cause, UnreadableCause::UnknownKey(id.to_owned()));
        assert!(unreadable.to_string().starts_with("the header X-A cannot be decrypted: "), "{unreadable}");
    }
}

#[test]
fn a_value_that_belongs_elsewhere_is_refused() {
    let keys = keyring(&[&new_key()]);
    let stored = keys.encrypt("text", &header("X-A")).unwrap();
    assert_eq!(keys.decrypt(&stored, &header("x-a")).unwrap(), "text", "names match in any case");
    let elsewhere = [
        SECRET,
        header("X-B"),
        header("secret"),
        Binding { owner: owner(2, 7), ..header("X-A") },
        Binding { owner: owner(1, 8), ..header("X-A") },
        Binding { owner: owner(17, 0), ..header("X-A") },
    ];
    for binding in elsewhere {
        let unreadable = keys.decrypt(&stored, &binding).unwrap_err();
        assert!(matches!(unreadable.cause, UnreadableCause::Damaged(_)), "{binding:?}");
    }
}

#[test]
fn texts_in_another_form_are_refused() {
    let keys = keyring(&[&new_key()]);
    let id = keys.first_id().unwrap();
    for text in ["", "enc:", "enc:v1:", "enc:v1:x", "enc:v2:a:AAAA", &format!("enc:v1:{id}:A"), "ENC:v1:a:AAAA"] {
        let unreadable = keys.decrypt(&StoredText::Encrypted(text.to_owned()), &SECRET).unwrap_err();
        assert_eq!(unreadable.cause, UnreadableCause::Malformed, "{text}");
    }
    for text in [format!("enc:v1:{id}:"), format!("enc:v1:{id}:AAAA")] {
        let unreadable = keys.decrypt(&StoredText::Encrypted(text.clone()), &SECRET).unwrap_err();
        assert_eq!(unreadable.cause, UnreadableCause::Damaged(id.to_owned()), "{text}");
    }
}

proptest! {
    #[test]
    fn every_text_survives_encryption(text in any::<String>(), name in "[!-~]{0,40}") {
        let keys = keyring(&[&new_key()]);
        let stored = keys.encrypt(&text, &header(&name)).unwrap();
        prop_assert!(text.len() < 8 || !text_of(&stored).contains(&text));
        prop_assert_eq!(keys.decrypt(&stored, &header(&name)).unwrap(), text);
    }

    #[test]
    fn no_two_bindings_are_interchangeable(
        one in (0..30i32, 0..30i64, "[a-c/]{0,3}"), other in (0..30i32, 0..30i64, "[a-c/]{0,3}"),
    ) {
        let binding = |(namespace, id, name): &(i32, i64, String)| {
            Binding { owner: owner(*namespace, *id), field: Field::Header(name) }.authenticated_text()
        };
        prop_assert_eq!(one == other, binding(&one) == binding(&other));
    }

    #[test]
    fn every_change_of_the_encrypted_bytes_is_noticed(text in "[ -~]{0,40}", at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let key = SecretKey::parse(&new_key()).unwrap();
        let whole = key.encrypt(&text, "a").unwrap();
        let mut changed = whole.clone();
        changed[at.index(whole.len())] ^= flip;
        prop_assert_eq!(key.decrypt(&changed, "a"), None);
        prop_assert_eq!(key.decrypt(&whole[..at.index(whole.len())], "a"), None);
        prop_assert_eq!(key.decrypt(&whole, "a"), Some(text));
    }
}
