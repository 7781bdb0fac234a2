//! `waybill secrets`, and what `--help` shows.

use serde_json::json;

use super::life::live;
use super::{KeyFile, change_rows, id_of_key, new_key, printed, rotate, start};
use crate::support::database;
use crate::support::process::{Process, waybill};
use crate::support::receiver::Receiver;

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_key_is_accepted_by_the_variable_and_in_the_file() {
    let output = waybill(&["secrets", "generate-key"]).output().expect("it runs");
    let line = printed(&output);
    assert_eq!(line.lines().count(), 1);
    let key = line.trim();
    let url = database::migrated().await;
    let arguments = ["serve", "--bind", "127.0.0.1:0", "--database-url", &url];
    let mut by_variable = waybill(&arguments);
    by_variable.env("WAYBILL_SECRET_KEY", key);
    let file = KeyFile::of(&["# made by generate-key", key, ""]);
    let mut by_file = waybill(&arguments);
    by_file.args(["--secret-key-file", file.path()]);
    for command in [by_variable, by_file] {
        let server = tokio::task::block_in_place(|| Process::start(command));
        let log = server.stderr();
        assert!(log.contains(&id_of_key(key)) && !log.contains(key), "{log}");
        server.stop().await;
    }
}

#[test]
fn help_shows_no_key() {
    let key = new_key();
    // The list of commands has no settings.
    for (arguments, names_it) in
        [(vec!["--help"], false), (vec!["serve", "--help"], true), (vec!["secrets", "rotate", "--help"], true)]
    {
        let output = waybill(&arguments).env("WAYBILL_SECRET_KEY", &key).output().expect("it runs");
        let help = printed(&output);
        assert_eq!(help.contains("WAYBILL_SECRET_KEY"), names_it, "{help}");
        assert!(!help.contains(&key), "{help}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_counts_values_by_key_and_changes_nothing() {
    let (old, new) = (new_key(), new_key());
    let (app, receiver) = (start(&[&old], None).await, Receiver::start().await);
    live(&app, &receiver).await;
    let plain = "INSERT INTO waybill.subscriptions (url, spec) VALUES ('http://a', '{\"url\": \"http://a\", \"headers\": {\"X-A\": \"a\"}}')";
    change_rows(&app, plain).await;
    let before = super::dump(&app.url).await;
    let shown = printed(&rotate(&app.url, &[&new, &old], &["--dry-run"]).await);
    assert_eq!(super::dump(&app.url).await, before);
    let old_id = id_of_key(&old);
    // Two secrets, two headers of the subscription, and those of the letters of two failures.
    let expected = format!(
        "        2  webhook secrets                 key {old_id}\n        \
         1  header values of subscriptions  not encrypted\n        \
         2  header values of subscriptions  key {old_id}\n        \
         4  header values in dead letters   key {old_id}\n"
    );
    assert_eq!(shown, expected);
    let unknown = rotate(&app.url, &[&new], &["--dry-run"]).await;
    let shown = String::from_utf8(unknown.stdout).expect("text");
    assert!(shown.contains(&format!("key {old_id} (unknown)")) && !unknown.status.success(), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_without_a_key_is_refused() {
    let url = database::migrated().await;
    let refused = rotate(&url, &[], &[]).await;
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("there is no key to encrypt with"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_leaves_what_it_cannot_decrypt_and_says_so() {
    let (lost, new) = (new_key(), new_key());
    let app = start(&[&lost], None).await;
    app.subscribe("http://127.0.0.1:9/", json!({"headers": {"X-A": "a"}})).await;
    let before = super::dump(&app.url).await;
    let output = rotate(&app.url, &[&new], &[]).await;
    assert!(!output.status.success());
    let told = String::from_utf8(output.stderr).expect("text");
    assert!(told.contains("2 values cannot be decrypted and were left as they are"), "{told}");
    assert!(told.contains(&id_of_key(&lost)) && told.contains("the header X-A"), "{told}");
    assert_eq!(super::dump(&app.url).await, before);
}
