//! What is in the database and in responses.

use super::life::{Life, live};
use super::{dump, id_of_key, new_key, printed, rotate, start};
use crate::support::ledger;
use crate::support::receiver::Receiver;

#[tokio::test(flavor = "multi_thread")]
async fn with_a_key_neither_secrets_nor_header_values_are_in_the_database() {
    let key = new_key();
    let (app, receiver) = (start(&[&key], None).await, Receiver::start().await);
    let Life { private, .. } = live(&app, &receiver).await;
    let dump = dump(&app.url).await;
    for text in &private {
        assert!(!dump.contains(text), "{text} is in the database");
    }
    assert!(!dump.contains(&key), "the key is in the database");
    assert!(dump.contains(&format!("enc:v1:{}:", id_of_key(&key))), "the id of the key is beside the text");
    assert!(dump.contains("[redacted]"), "the receiver has repeated the header values");
    ledger::check(&app).await;
}

/// Shows that the test above looks in the right places, too.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_they_are_stored_as_they_are_and_a_rotation_encrypts_them() {
    let (app, receiver) = (start(&[], None).await, Receiver::start().await);
    let Life { private, .. } = live(&app, &receiver).await;
    let plain = dump(&app.url).await;
    for text in &private {
        assert!(plain.contains(text), "{text} is not in the database");
    }
    for table in ["subscription_secrets", "subscriptions", "dead_letters"] {
        let is_here = |line: &str| line.starts_with(table) && private.iter().any(|text| line.contains(text));
        assert!(plain.lines().any(is_here), "{table}");
    }
    assert!(!plain.lines().any(|line| line.starts_with("event_log") && line.contains("k3pt-forever")));
    printed(&rotate(&app.url, &[&new_key()], &[]).await);
    let encrypted = dump(&app.url).await;
    for text in &private {
        assert!(!encrypted.contains(text), "{text} is in the database");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_response_shows_a_header_value_or_a_secret_again() {
    for keys in [vec![], vec![new_key()]] {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let (app, receiver) = (start(&keys, None).await, Receiver::start().await);
        let Life { private, responses, .. } = live(&app, &receiver).await;
        for response in responses {
            for text in &private {
                assert!(!response.contains(text), "{text} is in {response}");
            }
            assert!(!response.contains("enc:v1:"), "{response}");
        }
    }
}
